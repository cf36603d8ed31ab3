"""The same algorithm gives the same bits in one process and in many."""

from __future__ import annotations

import pytest
from tests.contract.helpers import (
    MEASUREMENTS,
    ROUGH,
    assert_same_outcome,
    every_algorithm,
    finish,
    make,
    run_of,
)
from tests.helpers import tiny_federation

from consort.core.wire import encode
from consort.run.run import Run
from consort.run.schedule import Schedule


@every_algorithm
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_one_process_two_workers_and_three_workers_agree(name, batchnorm, tmp_path):
    outcomes = [
        finish(
            run_of(
                name,
                tmp_path / str(workers),
                tiny_federation(3, model=ROUGH, batchnorm=batchnorm),
                workers=workers,
            )
        )
        for workers in (1, 2, 3)
    ]
    assert len(outcomes[0].rows) > 0
    assert_same_outcome(outcomes[1], outcomes[0])
    assert_same_outcome(outcomes[2], outcomes[0])


@every_algorithm
def test_more_workers_than_clients_agree_with_one_process(name, tmp_path):
    settings = {"participation": 0.5, "dropout": 0.3}
    alone = finish(run_of(name, tmp_path / "1", **settings))
    many = finish(run_of(name, tmp_path / "5", workers=5, **settings))
    assert_same_outcome(many, alone)


@every_algorithm
def test_a_run_without_a_folder_is_the_same_run(name, tmp_path):
    kept = finish(run_of(name, tmp_path))
    for workers in (1, 2):
        run = Run(tiny_federation(3), make(name), Schedule(3), workers=workers)
        assert [row for row in run.go() if row.metric not in MEASUREMENTS] == kept.rows
        assert encode(run.server) == encode(kept.server)
