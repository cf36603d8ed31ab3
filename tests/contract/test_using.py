"""The model that a user takes out of a run is the one that was scored, whatever the algorithm."""

from __future__ import annotations

import pytest
from tests.contract.helpers import ROUGH, every_algorithm, finish, run_of
from tests.helpers import assert_same, tiny_federation

from consort.experiment.trained import reported_model
from consort.training.scoring import score


@every_algorithm
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_the_reported_model_has_the_scores_of_the_last_round(name, batchnorm, tmp_path):
    federation = tiny_federation(3, model=ROUGH, batchnorm=batchnorm)
    run = run_of(name, tmp_path, federation, rounds=2)
    rows = finish(run).rows
    found = reported_model(run, "c1")
    assert found is not None
    recorded = {
        (row.split, row.task, row.metric): row.value
        for row in rows
        if (row.round, row.client, row.model) == (2, "c1", run.algorithm.reports)
    }
    assert recorded == values(found.scores)
    assert found.round == 2
    data = run.federation.data("c1")
    assert_same(score(found.model, run.federation.members["c1"].tasks, data), found.scores)


def values(scores):
    return {
        (split, task, metric): value
        for split, content in scores.items()
        for task, metrics in content["tasks"].items()
        for metric, value in metrics.items()
    }
