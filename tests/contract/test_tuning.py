"""Local training before the test is measured beside everything else, and changes nothing of it."""

from __future__ import annotations

import pytest
from tests.contract.helpers import ROUGH, assert_same_outcome, every_algorithm, finish, run_of
from tests.helpers import tiny_federation


def places(rows, model):
    """What was measured of a model, and of whom."""
    return {
        (row.round, row.client, row.task, row.split, row.metric, row.n)
        for row in rows
        if row.model == model
    }


@every_algorithm
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_tuning_adds_scores_of_every_client_and_leaves_all_else_alone(name, batchnorm, tmp_path):
    def outcome(epochs):
        federation = tiny_federation(3, model=ROUGH, batchnorm=batchnorm)
        run = run_of(name, tmp_path / str(epochs), federation, rounds=2, tuning_epochs=epochs)
        return run.algorithm.reports, finish(run)

    reports, tuned = outcome(2)
    _, plain = outcome(0)
    measured = places(tuned.rows, "tuned")
    assert {(round_, client) for round_, client, *_ in measured} == {
        (round_, client) for round_ in (1, 2) for client in ("c0", "c1", "c2")
    }
    assert measured == places(tuned.rows, reports)
    tunes_itself = any(row.model == "tuned" for row in plain.rows)
    kept = [row for row in tuned.rows if tunes_itself or row.model != "tuned"]
    assert kept == plain.rows
    assert tuned.weights == plain.weights


@every_algorithm
def test_tuning_moves_the_model_that_is_tested(name, tmp_path):
    rows = finish(run_of(name, tmp_path, tuning_epochs=3)).rows
    losses = {
        model: {(r.round, r.client, r.split): r.value for r in rows
                if (r.metric, r.model) == ("loss", model)}
        for model in {row.model for row in rows if row.split}
    }  # fmt: skip
    tuned = losses.pop("tuned")
    assert losses
    for received in losses.values():
        assert all(tuned[place] != received[place] for place in received)


@every_algorithm
def test_tuned_scores_are_the_same_in_workers(name, tmp_path):
    federation = tiny_federation(3, model=ROUGH)
    alone, many = (
        finish(run_of(name, tmp_path / str(n), federation, rounds=2, tuning_epochs=1, workers=n))
        for n in (1, 2)
    )
    assert_same_outcome(many, alone)
