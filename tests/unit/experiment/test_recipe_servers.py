"""What a recipe says about the server: its optimiser, its data, and whom it selects."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import torch
from tests.unit.cli.command import RECIPE

from consort.aggregation.server_optimizer import ServerOptimizer
from consort.errors import UsageError
from consort.experiment.assembly import assemble, run_of
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.preflight import refuse_among_institutions
from consort.experiment.recipe import Recipe
from consort.federation.selection import PowerOfChoice, Weighted, selection_of

TINY = tomllib.loads(RECIPE)


def recipe(**changes: Any) -> Recipe:
    return recipe_of({**TINY, **changes}, "tiny.toml")


def test_an_averaging_algorithm_can_have_an_optimiser_of_its_server():
    options = {"kind": "fedprox", "mu": 0.5, "server_optimizer": {"rule": "yogi", "lr": 0.1}}
    algorithm: Any = recipe(algorithms={"mine": options}).algorithm("mine")
    assert algorithm.server_optimizer == ServerOptimizer("yogi", 0.1)
    assert algorithm.mu == 0.5
    assert "memory" in algorithm.state_type().__dataclass_fields__


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "scaffold", "server_optimizer": {}}, "Scaffold has no server_optimizer"),
        ({"kind": "fedavg", "server_optimizer": {"rule": "adma"}}, "server_optimizer.rule"),
        ({"kind": "fedavg", "server_optimizer": {"rate": 1.0}}, "server_optimizer.rate"),
        ({"kind": "fedavg", "server_optimizer": {"lr": 0.0}}, "server_optimizer.lr"),
    ],
)
def test_a_wrong_optimiser_is_refused_with_its_key(options, message):
    with pytest.raises(UsageError, match=message):
        recipe(algorithms={"mine": options}).algorithm("mine")


def test_every_algorithm_can_select_its_clients_in_its_own_way():
    own = {"participation": 0.5, "selection": {"name": "power_of_choice", "candidates": 3.0}}
    both = recipe(
        run={"rounds": 2, "selection": "weighted"},
        algorithms={"fedavg": {}, "mine": {"kind": "fedavg"} | own},
    )
    assert selection_of(both.schedule("fedavg").selection) == Weighted()
    assert selection_of(both.schedule("mine").selection) == PowerOfChoice(3.0)
    assert (both.schedule("mine").participation, both.schedule("mine").rounds) == (0.5, 2)
    assert both.table["run"]["selection"] == "weighted"
    federation = assemble(both, 0, None).federation
    assert run_of(both, "mine", federation).schedule == both.schedule("mine")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"run": {"selection": "unifrom"}}, "did you mean 'uniform'"),
        (
            {"algorithms": {"fedavg": {"selection": {"name": "oort", "greed": 1}}}},
            "selection.greed",
        ),
        ({"algorithms": {"fedavg": {"participation": 2.0}}}, "fedavg.participation"),
        ({"algorithms": {"fedavg": {"selection": "oort"}}, "run": {"evaluate_every": 0}}, "losses"),
    ],
)
def test_a_wrong_selection_is_refused_when_the_recipe_is_read(changes, message):
    with pytest.raises(UsageError, match=message):
        recipe(**changes)


def test_a_selection_of_ones_own_lies_beside_the_recipe(tmp_path):
    (tmp_path / "mine.py").write_text("def first(candidates):\n    return candidates.ids[:1]\n")
    (tmp_path / "tiny.toml").write_text(
        RECIPE.replace("[run]", '[run]\nselection = "mine.py:first"')
    )
    chosen = load_recipe(tmp_path / "tiny.toml").run.selection
    assert selection_of(chosen).__name__ == "first"


def server_side(**server):
    changed = recipe(server=server, algorithms={"feddf": {"server_steps": 2}})
    return changed, assemble(changed, 0, None).federation


def test_the_server_has_as_many_examples_as_the_recipe_says_and_none_of_the_clients():
    changed, federation = server_side(data=TINY["data"], examples=7)
    first = federation.client_ids[0]
    student = federation.server_side(first, 0, 1, 2)
    public = student.data.train.inputs
    assert public.shape[1:] == federation.members[first].example.shape
    assert (len(public), student.data.train.targets) == (7, {})
    known = {
        tuple(row.flatten().tolist())
        for client in federation.client_ids
        for part in federation.data(client).parts
        for row in part.inputs
    }
    assert not known & {tuple(row.flatten().tolist()) for row in public}
    _, again = server_side(data=TINY["data"], examples=7)
    assert torch.equal(again.server_side(first, 0, 1, 2).data.train.inputs, public)
    run_of(changed, "feddf", federation).go()


def test_a_server_without_a_data_set_is_refused():
    with pytest.raises(UsageError, match=r"key server\.data is missing"):
        server_side(examples=7)


def test_among_institutions_a_server_has_no_models():
    changed = recipe(server={"data": TINY["data"]}, algorithms={"fedavg": {}})
    with pytest.raises(UsageError, match=r"\[server\.data\] works in simulations only"):
        refuse_among_institutions(changed, "fedavg")
