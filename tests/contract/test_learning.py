"""Clients learn, the seed decides everything that is drawn, and looking changes nothing."""

from __future__ import annotations

import pytest
from tests.contract.helpers import (
    ROUGH,
    assert_same_outcome,
    every_algorithm,
    finish,
    make,
    run_of,
)
from tests.helpers import ONE_TASK, TWO_TASKS, server_examples, tiny_federation

from consort.data.examples import Splits
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.training.scoring import score


def examined_on_training_data(tasks):
    (member,) = tiny_federation(1, tasks).members.values()
    train = member.load().train
    alone = Member.of(member.tasks, member.model, Splits(train, train, train))
    return Federation({"alone": alone}, server_data=server_examples())


@every_algorithm
@pytest.mark.parametrize("tasks", [ONE_TASK, TWO_TASKS], ids=len)
def test_one_client_alone_lowers_its_training_loss(name, tasks, tmp_path):
    federation = examined_on_training_data(tasks)
    model = federation.blueprint("alone").fresh()
    before = score(model, federation.members["alone"].tasks, federation.data("alone"))["test"]
    outcome = finish(run_of(name, tmp_path, federation, rounds=6))
    after = {
        (row.model, row.task): row.value
        for row in outcome.rows
        if (row.metric, row.split, row.round) == ("loss", "test", 6)
    }
    assert {model for model, _ in after} >= {make(name).reports}
    for (_, task), loss in after.items():
        assert loss < before["tasks"][task]["loss"] - 0.01


@every_algorithm
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_evaluation_changes_no_later_round(name, batchnorm, tmp_path):
    def run(every):
        federation = tiny_federation(3, model=ROUGH, batchnorm=batchnorm)
        return finish(run_of(name, tmp_path / str(every), federation, evaluate_every=every))

    watched, unwatched = run(1), run(0)
    assert watched.weights == unwatched.weights
    assert {row.round for row in unwatched.rows if row.split} == {3}
    trained = {row.metric for row in unwatched.rows if row.round < 3}
    kept = [row for row in watched.rows if row.round == 3 or row.metric in trained]
    assert kept == unwatched.rows


@every_algorithm
def test_the_seed_decides(name, tmp_path):
    def run(folder, seed):
        return finish(run_of(name, tmp_path / folder, tiny_federation(3, model=ROUGH), seed=seed))

    first, again, other = run("first", 1), run("again", 1), run("other", 2)
    assert_same_outcome(again, first)
    assert other.weights != first.weights
    assert [row.value for row in other.rows] != [row.value for row in first.rows]


@every_algorithm
def test_the_seed_of_the_federation_decides_where_models_start(name, tmp_path):
    one = finish(run_of(name, tmp_path / "1", tiny_federation(2, seed=1)))
    two = finish(run_of(name, tmp_path / "2", tiny_federation(2, seed=2)))
    assert one.weights != two.weights
