"""Every entry point with some thousand changed inputs, and with everything found before."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.loop import LARGEST, corpus, fuzz, tried
from tests.fuzz.mutation import mutate_message
from tests.fuzz.targets import TARGETS, Target

from consort.core.wire import encode
from consort.errors import Refused

INPUTS = {"training_round": 400}
every_target = pytest.mark.parametrize("name", TARGETS)


@every_target
def test_seeds_are_accepted(name):
    target = TARGETS[name]
    assert all(tried(target, data) == (True, "") for data in target.seeds())


@every_target
def test_what_was_found_before_is_treated_as_it_should(name):
    target = TARGETS[name]
    assert {file: tried(target, data)[1] for file, data in corpus(target).items()} == dict.fromkeys(
        corpus(target), ""
    )


@every_target
def test_changed_inputs_are_accepted_or_refused(name):
    outcome = fuzz(TARGETS[name], seed=0, most=INPUTS.get(name, 1500))
    assert [wrong for _, wrong in outcome.findings] == []
    assert 0 < outcome.accepted < outcome.inputs


@every_target
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(place=st.integers(0, 10**6), steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_inputs_that_hypothesis_changes_are_accepted_or_refused(name, place, steps):
    target = TARGETS[name]
    seeds = list(target.seeds())
    data = seeds[place % len(seeds)]
    for step in steps:
        data = target.mutate(data, Random(step))[:LARGEST]
    assert tried(target, data)[1] == ""


@pytest.mark.parametrize("error", [KeyError("x"), RecursionError(), AssertionError()])
def test_other_errors_are_findings(error):
    def run(data):
        raise error

    broken = Target("broken", run, lambda: [b"x"], mutate_message)
    outcome = fuzz(broken, seed=0, most=3)
    assert len(outcome.findings) == 3


def test_slow_inputs_are_findings(monkeypatch):
    monkeypatch.setattr("tests.fuzz.loop.SECONDS", 0.0)
    _, wrong = tried(Target("slow", lambda _: sum(range(10**5)), list, mutate_message), b"")
    assert "seconds" in wrong


def test_refusals_are_no_findings():
    def run(data):
        raise Refused("no")

    refusing = Target("refusing", run, lambda: [b"x"], mutate_message)
    assert fuzz(refusing, seed=0, most=10).findings == []


def test_the_same_seed_changes_in_the_same_way():
    data = encode({"a": [1, 2, {"b": None}]})
    once, again = ([mutate_message(data, Random(seed)) for seed in range(50)] for _ in range(2))
    assert once == again
    assert len(set(once)) > 30
