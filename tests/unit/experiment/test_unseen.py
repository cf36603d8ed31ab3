"""Users that no client trains on, from the recipe to the results."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from consort.data.registry import load_dataset
from consort.domains.signatures.dataset import held_out
from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run
from consort.experiment.recipe import Recipe
from consort.results.result import Result

SIGNATURES = {"name": "synthetic_signatures", "users": 6, "genuine": 8, "forged": 4}
SMALL = {"size": [16, 24]}
QUICK = {"references": 3, "tests": 2, "repetitions": 1, "gamma": 0.01}


def recipe(**changes: Any) -> Recipe:
    table = {
        "clients": 2,
        "data": SIGNATURES | SMALL,
        "model": {"name": "mlp", "hidden": [8]},
        "run": {"rounds": 2},
        "verification": QUICK,
        "algorithms": {"fedavg": {}, "local_only": {}},
    }
    return recipe_of({**table, **changes}, "banks.toml")


def test_the_last_users_are_held_out():
    dataset = load_dataset("synthetic_signatures", 0, None, users=5, genuine=3, forged=2, **SMALL)
    kept, strangers = held_out(dataset, 2)
    assert (len(kept), len(strangers)) == (15, 10)
    assert (kept.labels.tolist(), strangers.labels.tolist()) == (
        np.repeat([0, 1, 2], 5).tolist(),
        np.repeat([3, 4], 5).tolist(),
    )
    assert kept.tasks["identify"].users == 3
    assert (kept.examples.inputs == dataset.examples.inputs[:15]).all()
    assert (strangers.examples.inputs == dataset.examples.inputs[15:]).all()
    assert strangers.examples.targets["detect"].tolist() == [1, 1, 1, 0, 0] * 2
    assert kept.strata.tolist() == dataset.strata[:15].tolist()


def test_nobody_is_left_to_train_on():
    with pytest.raises(UsageError, match="has 6 users: holding 6 of them out leaves none"):
        assemble(recipe(unseen={"others": {"users": 6}}), 0, None)


def test_clients_share_the_users_that_are_left():
    made = assemble(recipe(unseen={"others": {"users": 2}}), 0, None)
    held = {label for client in made.description["clients"].values() for label in client["labels"]}
    assert held == {"0", "1", "2", "3"}
    assert made.federation.members["client-0"].tasks["identify"].users == 4
    (verification,) = made.federation.extras
    assert set(verification.unseen["unseen_others"].labels) == {4, 5}
    assert made.description["tasks"]["verify"] == {"metric": "wd_eer", "higher_is_better": False}


def write_signatures(folder: Path, users: int = 4) -> None:
    rng = np.random.default_rng(0)
    for user, kind, number in product(range(users), ("genuine", "forged"), range(6)):
        page = Image.fromarray(rng.integers(0, 256, (16, 24), dtype=np.uint8))
        (folder / f"signatures/{user}/{kind}").mkdir(parents=True, exist_ok=True)
        page.save(folder / f"signatures/{user}/{kind}/{number}.png")


@pytest.mark.parametrize(("first", "last"), [(0, 4), (1, 3), (0, 3)])
def test_users_of_clients_are_not_unseen(tmp_path, first, last):
    write_signatures(tmp_path)
    data = {"name": "signature_folder", "size": [16, 24]}
    one, other = data | {"only_users": [first, last]}, data | {"only_users": [2, 4]}
    with pytest.raises(UsageError, match=r"unseen.a: clients hold some of its signatures"):
        assemble(recipe(data=one, unseen={"a": {"data": other}}), 0, tmp_path)
    apart = data | {"only_users": [0, 2]}
    made = assemble(recipe(data=apart, unseen={"a": {"data": other}}), 0, tmp_path)
    assert len(made.federation.extras[0].unseen["unseen_a"]) == 24


def test_generated_users_are_others_even_with_the_same_options():
    made = assemble(recipe(unseen={"same": {"data": SIGNATURES | SMALL}}), 0, None)
    strangers = made.federation.extras[0].unseen["unseen_same"].examples.inputs
    known = load_dataset(
        "synthetic_signatures", 0, None, users=6, genuine=8, forged=4, **SMALL
    ).examples.inputs
    assert not (strangers[:, None] == known[None]).flatten(2).all(2).any()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"unseen": {"a": {}}}, "unseen.a needs either"),
        ({"unseen": {"a": {"users": 1, "data": SIGNATURES}}}, "unseen.a needs either"),
        ({"unseen": {"a": {"users": 1}, "b": {"users": 1}}}, "only one table"),
        ({"unseen": {"a b": {"users": 1}}}, "only letters, digits and _"),
        ({"unseen": {"a": {"users": 1}}, "verification": None}, r"add \[verification\]"),
        ({"unseen": {"a": {"user": 1}}}, "unknown key unseen.a.user"),
        ({"verification": {"reference": 3}}, "unknown key verification.reference"),
        ({"verification": {"references": 0}}, "verification.references"),
        ({"average_rounds": 0}, "average_rounds"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(changes, problem):
    with pytest.raises(UsageError, match=problem):
        recipe(**changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"unseen": {"a": {"data": SIGNATURES | {"size": [24, 24]}}}}, r"\(1, 24, 24\).*same size"),
        (
            {"unseen": {"a": {"data": {"name": "synthetic_vectors"}}}},
            "is not a data set of signatures",
        ),
        ({"data": {"name": "synthetic_vectors"}}, "client client-0 has the tasks classify"),
        (
            {"clients": None, "groups": [{"name": "a", "count": 2, "tasks": ["detect"]}]},
            "client a-0 has the tasks detect: change them",
        ),
    ],
)
def test_what_cannot_be_verified_is_refused_before_training(changes, problem):
    with pytest.raises(UsageError, match=problem):
        assemble(recipe(**changes), 0, None)


def test_held_out_users_need_data_with_users():
    plain = {"data": {"name": "synthetic_vectors"}, "unseen": {"a": {"users": 1}}}
    with pytest.raises(UsageError, match="no users to hold out"):
        assemble(recipe(**plain), 0, None)


def test_a_run_measures_them_in_the_last_round(tmp_path):
    other = SIGNATURES | SMALL | {"users": 3, "genuine": 7}
    unseen = {"others": {"users": 2}, "elsewhere": {"data": other}}
    prepare_run(recipe(unseen=unseen), "local_only", 0, tmp_path).go()
    result = Result.load(tmp_path)
    for name in ("wd_eer", "wd_auc", "wd_far", "best_wd_eer", "worst_wd_eer", "weighted_wd_eer"):
        assert 0 <= result.value(name) <= 1
    for name in ("others", "elsewhere"):
        assert 0 <= result.value(f"unseen_{name}_wd_eer") <= 1
        rounds = [r for r in (1, 2) if result.clients_at(r, "verify", "", f"unseen_{name}")]
        assert rounds == [2]
    assert result.value("unseen_others_wd_users") == 2
    curve = result.graph("verify", "wd_det", "unseen_others")
    assert curve.keys() == {"client-0", "client-1"}
    assert 0 <= curve["client-0"]["0.1"] <= curve["client-0"]["0.01"] <= 1
    assert "wd_det" not in result.metric_names()


def test_what_only_tells_can_change_and_is_brought_up_to_date(tmp_path):
    plain = recipe()
    first = list(prepare_run(plain, "fedavg", 0, tmp_path).go())
    averaged = recipe(average_rounds=2, title="Banks")
    again = prepare_run(averaged, "fedavg", 0, tmp_path).go()
    assert list(again) == first
    about = json.loads((tmp_path / "run.json").read_text())
    assert (about["recipe"]["average_rounds"], about["title"]) == (2, "Banks")
    result = Result.load(tmp_path)
    mean = np.mean([list(result.by_client("wd_eer", r).values()) for r in (1, 2)])
    assert result.value("wd_eer") == pytest.approx(mean)
