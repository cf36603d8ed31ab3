"""Moments that stay with a client are part of its state: the same bits however a run is run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.helpers import assert_same_outcome, finish, make, run_of
from tests.contract.test_resuming import PowerCut, PullsThePlug

from consort.training.local import LocalTraining

KEPT = LocalTraining(lr=0.01, batch=16, optimizer="adamw", weight_decay=0.01, keep_optimizer=True)
NAMES = ("fedavg", "fedrep", "fedhca2", "own_or_common", "ditto")
"""One training per call; two parts of a model; models that stay; two models per call."""


def kept(name, folder, local=KEPT, **settings):
    run = run_of(name, folder, participation=0.7, **settings)
    return replace(run, algorithm=replace(make(name, 3), local=local))


@pytest.mark.parametrize("name", NAMES)
def test_one_process_and_two_workers_agree(name, tmp_path):
    alone = finish(kept(name, tmp_path / "1"))
    assert_same_outcome(finish(kept(name, tmp_path / "2", workers=2)), alone)
    reset = replace(KEPT, keep_optimizer=False)
    assert finish(kept(name, tmp_path / "reset", reset)).rows != alone.rows


@pytest.mark.parametrize("moment", [("answered", 2), ("evaluated", 2), ("answered", 3)])
@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_cut_off_ends_like_one_that_was_not(name, moment, tmp_path):
    with pytest.raises(PowerCut):
        kept(name, tmp_path / "cut", observer=PullsThePlug(moment)).go()
    straight = finish(kept(name, tmp_path / "straight"))
    assert_same_outcome(finish(kept(name, tmp_path / "cut")), straight)
