"""What a recipe says about the server: its optimiser, its data, and whom it selects."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from tests.unit.cli.command import RECIPE

from consort.aggregation.server_optimizer import ServerOptimizer
from consort.errors import UsageError
from consort.experiment.loading import recipe_of
from consort.experiment.recipe import Recipe

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
