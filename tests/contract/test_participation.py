"""Who takes part, in which order, and who fails to answer, asks for no code in an algorithm."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.contract.helpers import (
    Listener,
    assert_same_outcome,
    every_algorithm,
    finish,
    make,
    run_of,
)
from tests.helpers import server_examples, tiny_federation, tiny_member

from consort.core.wire import encode, tensors_in
from consort.data.examples import Examples, Splits
from consort.engines.middleware import Absent
from consort.errors import Failure
from consort.federation.federation import Federation
from consort.federation.member import Member


def assert_finite(outcome):
    tensors = [tensor for _, tensor in tensors_in([vars(outcome.server), outcome.states])]
    assert tensors
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors)


def asked_in(run, round_):
    """The clients that were timed while they trained."""
    timed = [row for row in run.history if row.metric == "seconds" and row.round == round_]
    return {row.client for row in timed if row.client}


def scored_in(outcome, round_):
    return {row.client for row in outcome.rows if row.round == round_ and row.split == "test"}


@every_algorithm
def test_the_order_in_which_clients_are_listed_does_not_matter(name, tmp_path):
    members = tiny_federation(3).members
    listed = finish(
        run_of(name, tmp_path / "listed", Federation(members, server_data=server_examples()))
    )
    reversed_ = Federation(dict(reversed(members.items())), server_data=server_examples())
    assert_same_outcome(finish(run_of(name, tmp_path / "reversed", reversed_)), listed)


@every_algorithm
def test_a_share_of_the_clients_trains_and_all_are_tested(name, tmp_path):
    run = run_of(name, tmp_path, tiny_federation(4), participation=0.5, rounds=4)
    outcome = finish(run)
    assert_finite(outcome)
    share = 1 if run.algorithm.pools_data else 2
    cohorts = [asked_in(run, round_) for round_ in (1, 2, 3, 4)]
    assert all(len(cohort) == share for cohort in cohorts)
    assert set().union(*cohorts) == set(run.federation.client_ids)
    assert all(scored_in(outcome, round_) == {"c0", "c1", "c2", "c3"} for round_ in (1, 2, 3, 4))


@every_algorithm
@pytest.mark.parametrize("fault", ["dropout", "stragglers"])
def test_a_round_works_without_the_clients_that_do_not_answer(name, fault, tmp_path):
    settings = {"seed": 2, "rounds": 4}  # everybody, and the pool, fails and answers some time
    listener = Listener()
    run = run_of(name, tmp_path / "some", observer=listener, **{fault: 0.5}, **settings)
    some = finish(run)
    lost = Counter(error.client for error in listener.failures if isinstance(error, Absent))
    assert set(lost) == set(run.federation.client_ids)
    assert all(0 < count < 4 for count in lost.values())
    assert_finite(some)
    assert scored_in(some, 4) == {"c0", "c1", "c2"}
    everyone = finish(run_of(name, tmp_path / "all", **settings))
    # A straggler that has nothing to send has lost nothing.
    unharmed = fault == "stragglers" and not any(row.metric == "bytes_up" for row in some.rows)
    assert (some.weights == everyone.weights) is unharmed


@every_algorithm
def test_rounds_in_which_nobody_is_reached_change_nothing(name, tmp_path):
    run = run_of(name, tmp_path, dropout=1.0, rounds=2)
    outcome = finish(run)
    assert encode(outcome.server) == encode(make(name).start(run.federation.roster))
    assert not any(outcome.states.values())
    assert scored_in(outcome, 2) == {"c0", "c1", "c2"}


def with_wrong_labels(member: Member) -> Member:
    """Labels that no head has an output for, in data that nobody sees before they are loaded."""
    splits = member.load()
    parts = (splits.train, splits.validation, splits.test)
    broken = [
        Examples(part.inputs, {task: target + 90 for task, target in part.targets.items()})
        for part in parts
    ]
    return replace(member, load=lambda: Splits(*broken))


@every_algorithm
def test_a_client_that_fails_is_named_and_the_others_go_on(name, tmp_path):
    members = tiny_federation(3).members
    members |= {"c1": with_wrong_labels(members["c1"])}
    broken = Federation(members, server_data=server_examples())
    listener = Listener()
    run = run_of(name, tmp_path, broken, on_error="skip", observer=listener)
    if run.algorithm.pools_data:  # one client with the data of all: nobody is left
        with pytest.raises(Failure, match="round 1: the answers of the only client failed"):
            run.go()
        return
    outcome = finish(run)
    assert {error.client for error in listener.failures} >= {"c1"}
    assert {error.client for error in listener.failures} <= {"c1", "(all)"}
    assert all(scored_in(outcome, round_) == {"c0", "c2"} for round_ in (1, 2, 3))
    assert not outcome.states.get("c1")
    start = run.algorithm.start(run.federation.roster)
    assert encode(outcome.server) != encode(start) or any(outcome.states.values())


@every_algorithm
def test_a_client_with_one_example_and_one_with_one_class_take_part(name, tmp_path):
    members = tiny_federation(2).members
    single = members["c0"].load()
    train = single.train.take(torch.zeros(20, dtype=torch.int64))
    one_class = Member.of(
        members["c0"].tasks, members["c0"].model, Splits(train, single.validation, single.test)
    )
    members |= {"one_class": one_class, "one_example": tiny_member("one_example", train=1)}
    outcome = finish(run_of(name, tmp_path, Federation(members, server_data=server_examples())))
    assert_finite(outcome)
    assert scored_in(outcome, 3) == {"c0", "c1", "one_class", "one_example"}


@every_algorithm
def test_a_client_without_validation_and_test_data_trains_but_has_no_scores(name, tmp_path):
    members = tiny_federation(2).members
    splits = members["c1"].load()
    nothing = splits.test.take(torch.zeros(0, dtype=torch.int64))
    silent = Member.of(
        members["c1"].tasks, members["c1"].model, Splits(splits.train, nothing, nothing)
    )
    some = Federation(members | {"c1": silent}, server_data=server_examples())
    outcome = finish(run_of(name, tmp_path, some))
    assert scored_in(outcome, 3) == {"c0"}
    assert_finite(outcome)
