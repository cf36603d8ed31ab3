"""A run that was cut off at any moment goes on to the numbers it would have had."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from tests.contract.helpers import NAMES, assert_same_outcome, every_algorithm, finish, run_of

from consort.algorithms.registry import find_algorithm
from consort.core.messages import Call, Replies
from consort.errors import UsageError
from consort.run.extension import uses_number_of_rounds
from consort.run.observer import Observer


class PowerCut(BaseException):
    """Nothing gets the chance to tidy up."""


@dataclass
class PullsThePlug(Observer):
    """Cuts the power the first time that something happens in a certain round."""

    moment: tuple[str, int]

    def note(self, event: str, round_: int) -> None:
        if (event, round_) == self.moment:
            raise PowerCut

    def round_started(self, round: int, calls: int) -> None:
        self.note("started", round)

    def answered(self, call: Call) -> None:
        self.note("tested" if call.evaluation else "answered", call.round)

    def evaluated(self, round: int, replies: Replies) -> None:
        self.note("evaluated", round)


def cut_off(name, folder, moment, **settings):
    with pytest.raises(PowerCut):
        run_of(name, folder, observer=PullsThePlug(moment), **settings).go()


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The outcome of a run that nobody disturbed."""

    @cache
    def outcome(name, rounds=3, participation=1.0):
        folder = tmp_path_factory.mktemp("straight")
        return finish(run_of(name, folder, rounds=rounds, participation=participation))

    return outcome


MOMENTS = [
    ("answered", 1),
    ("started", 2),
    ("answered", 2),
    ("tested", 2),
    ("evaluated", 2),
    ("answered", 3),
]


@every_algorithm
@pytest.mark.parametrize("moment", MOMENTS, ids=lambda moment: f"{moment[0]} {moment[1]}")
def test_a_run_that_was_cut_off_ends_like_one_that_was_not(name, moment, straight, tmp_path):
    cut_off(name, tmp_path, moment)
    assert_same_outcome(finish(run_of(name, tmp_path)), straight(name))


@every_algorithm
def test_a_run_may_be_cut_off_in_every_round_and_twice_in_one(name, straight, tmp_path):
    for moment in [("answered", 1), ("answered", 2), ("tested", 2), ("answered", 3), ("tested", 4)]:
        cut_off(name, tmp_path, moment, rounds=4)
    assert_same_outcome(finish(run_of(name, tmp_path, rounds=4)), straight(name, 4))


@every_algorithm
def test_workers_that_were_ahead_leave_nothing_behind_that_matters(name, straight, tmp_path):
    cut_off(name, tmp_path, ("answered", 2), workers=2, participation=0.7)
    resumed = finish(run_of(name, tmp_path, workers=3, participation=0.7))
    assert_same_outcome(resumed, straight(name, participation=0.7))


@every_algorithm
def test_a_finished_run_is_not_run_again(name, straight, tmp_path):
    run_of(name, tmp_path).go()
    again = finish(run_of(name, tmp_path, observer=PullsThePlug(("started", 1))))
    assert_same_outcome(again, straight(name))


PLANNED = {name for name in NAMES if uses_number_of_rounds(find_algorithm(name))}
"""Algorithms that plan by the number of rounds: a later end means other rounds."""


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PLANNED])
def test_a_finished_run_can_be_made_longer(name, straight, tmp_path):
    run_of(name, tmp_path, rounds=2).go()
    assert_same_outcome(finish(run_of(name, tmp_path, rounds=4)), straight(name, 4))


@pytest.mark.parametrize("name", sorted(PLANNED))
def test_a_finished_run_with_a_planned_end_is_not_made_longer(name, tmp_path):
    short = finish(run_of(name, tmp_path, rounds=2))
    with pytest.raises(UsageError, match="cannot be extended from 2 to 4 rounds, since the code"):
        run_of(name, tmp_path, rounds=4).go()
    assert_same_outcome(finish(run_of(name, tmp_path, rounds=2)), short)


@every_algorithm
def test_without_its_newest_checkpoint_a_run_goes_back_one_round(name, straight, tmp_path):
    """As after a crash between the last row of a round and its checkpoint."""
    run_of(name, tmp_path).go()
    (tmp_path / "round-000003.ckpt").unlink()
    assert_same_outcome(finish(run_of(name, tmp_path)), straight(name))
