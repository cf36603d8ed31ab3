"""A run that was cut off at any moment goes on to the numbers it would have had."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.contract.helpers import assert_same_outcome, every_algorithm, finish, run_of

from consort.messages import Call, Replies
from consort.run import Watcher


class PowerCut(BaseException):
    """Nothing gets the chance to tidy up."""


@dataclass
class PullsThePlug(Watcher):
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
        run_of(name, folder, watcher=PullsThePlug(moment), **settings).go()


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
def test_a_run_that_was_cut_off_ends_like_one_that_was_not(name, moment, tmp_path):
    straight = finish(run_of(name, tmp_path / "straight"))
    cut_off(name, tmp_path / "cut", moment)
    assert_same_outcome(finish(run_of(name, tmp_path / "cut")), straight)


@every_algorithm
def test_a_run_may_be_cut_off_in_every_round_and_twice_in_one(name, tmp_path):
    straight = finish(run_of(name, tmp_path / "straight", rounds=4))
    for moment in [("answered", 1), ("answered", 2), ("tested", 2), ("answered", 3), ("tested", 4)]:
        cut_off(name, tmp_path / "cut", moment, rounds=4)
    assert_same_outcome(finish(run_of(name, tmp_path / "cut", rounds=4)), straight)


@every_algorithm
def test_workers_that_were_ahead_leave_nothing_behind_that_matters(name, tmp_path):
    straight = finish(run_of(name, tmp_path / "straight", participation=0.75))
    cut_off(name, tmp_path / "cut", ("answered", 2), workers=2, participation=0.75)
    resumed = finish(run_of(name, tmp_path / "cut", workers=3, participation=0.75))
    assert_same_outcome(resumed, straight)


@every_algorithm
def test_a_finished_run_is_not_run_again(name, tmp_path):
    first = finish(run_of(name, tmp_path))
    again = finish(run_of(name, tmp_path, watcher=PullsThePlug(("started", 1))))
    assert_same_outcome(again, first)


@every_algorithm
def test_a_finished_run_can_be_made_longer(name, tmp_path):
    straight = finish(run_of(name, tmp_path / "straight", rounds=4))
    run_of(name, tmp_path / "longer", rounds=2).go()
    assert_same_outcome(finish(run_of(name, tmp_path / "longer", rounds=4)), straight)
