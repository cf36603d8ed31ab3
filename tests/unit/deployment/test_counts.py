"""Counts that leave a client, as exactly as its owner wants."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.contract.test_letters import recipe
from tests.institutions import NAMES
from tests.letters import PostOffice, engine_for, participants, run_with

from consort.core.params import Params
from consort.core.validation import checked
from consort.deployment.counts import Counts
from consort.errors import UsageError

ROUGH = Counts(round_to=10, suppress_below=5)


@given(st.integers(0, 10**6), st.integers(1, 100), st.integers(0, 100))
def test_a_count_is_near_the_true_one_or_nothing(count, step, least):
    told = Counts(step, least).told(count)
    assert told % step == 0
    if count and count >= least:
        assert told >= step
        assert abs(told - count) <= step
    else:
        assert told == 0


def test_counts_in_answers_are_rounded_and_all_else_is_sent_as_it_is():
    model = Params({"w": torch.tensor([3.0])})
    labels = {"digit": torch.tensor([4.0, 17.0, 0.0, 5.0])}
    sent = {"model": model, "examples": 26, "labels": labels, "loss": 3.0}
    told = ROUGH.answer(sent)
    assert told["model"] is model
    assert (told["examples"], told["loss"]) == (30, 3.0)
    assert told["labels"]["digit"].tolist() == [0.0, 20.0, 0.0, 10.0]
    assert sent["examples"] == 26


def test_scores_over_few_examples_are_not_sent():
    tasks = {"digit": {"accuracy": 0.5}}
    scores = {"validation": {"n": 4, "tasks": tasks}, "test": {"n": 14, "tasks": tasks}}
    told = ROUGH.answer({"global": scores, "epsilon": 1.0})
    assert told == {"global": {"test": {"n": 10, "tasks": tasks}}, "epsilon": 1.0}


def test_without_a_policy_nothing_changes():
    content = {"examples": 3}
    assert Counts().answer(content) is content
    assert Counts().description({"train": 3, "model": "mlp"}) == {"train": 3, "model": "mlp"}


def test_the_table_of_a_policy_is_checked():
    table = {"round_to": 10, "suppress_below": 5}
    assert checked(Counts, table, "policy.toml") == ROUGH
    for wrong in ({"round_to": 0}, {"suppress_below": -1}, {"roundto": 3}):
        with pytest.raises(UsageError):
            checked(Counts, wrong, "policy.toml")


@pytest.mark.parametrize("secure", [{}, {"secure": {}}])
def test_no_exact_count_leaves_a_client(secure, tmp_path):
    """Not in its description, not as a weight, masked or not, and not beside its scores."""
    clients = participants(tmp_path / "homes")
    for client in clients.values():
        client.policy = replace(client.policy, counts=Counts(round_to=16))
    post = PostOffice(clients)
    given = recipe("fedavg", **secure)
    run = run_with(given, "fedavg", engine_for(given, "fedavg", post, tmp_path), tmp_path)
    run.go()
    sizes = [row.n for row in run.history if row.split]
    assert sizes
    assert all(size % 16 == 0 and size > 0 for size in sizes)
    assert len(NAMES) == len({row.client for row in run.history if row.split})
