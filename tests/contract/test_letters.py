"""Every algorithm gives the same bits when all it says is put into letters, as for Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.contract.helpers import NAMES as ALGORITHMS
from tests.contract.helpers import Outcome, assert_same_outcome, finish, make
from tests.institutions import NAMES, groups
from tests.letters import PostOffice, engine_for, participants, run_with

from consort.algorithms.registry import find_algorithm
from consort.engines.states import StateStore
from consort.errors import UsageError
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.recipe import Recipe
from consort.run.run import Run

ON_SERVER = "feddf"
"""It runs models on the server, which knows only weights of clients that are far away."""
FEDERATED = [
    name for name in ALGORITHMS if not find_algorithm(name).pools_data and name != ON_SERVER
]


def recipe(name: str, **settings: Any) -> Recipe:
    made = make(name, 3)
    options = {
        key: getattr(made, key)
        for key in ("models", "clusters", "server_steps")
        if hasattr(made, key)
    }
    return recipe_of(
        {
            "clients": 3,
            "model": {"name": "mlp", "hidden": [8]},
            "run": {"rounds": 2},
            "local": {"lr": 0.1, "batch": 16},
            "algorithms": {name: options},
        }
        | settings,
        "letters",
    )


def near(name: str, folder: Path, **settings: Any) -> Outcome:
    given = recipe(name, clients=None, groups=groups(), **settings)
    federation = assemble(given, 0, None).federation.protected(*given.protections(name))
    return finish(Run(federation, given.algorithm(name), given.run, 0, folder))


def far(name: str, folder: Path, **settings: Any) -> Outcome:
    given = recipe(name, **settings)
    post = PostOffice(participants(folder / "homes"))
    engine = engine_for(given, name, post, folder)
    outcome = finish(run_with(given, name, engine, folder))
    end = (given.run.rounds + 1, 0)
    outcome.states = {
        client: StateStore(folder / "homes" / client / engine.ledger.session).load(client, end)
        for client in NAMES
    }
    return outcome


@pytest.mark.parametrize("name", FEDERATED)
def test_letters_change_nothing(name, tmp_path):
    outcome = far(name, tmp_path / "far")
    assert len(outcome.rows) > 0
    assert_same_outcome(outcome, near(name, tmp_path / "near"))


def test_a_server_that_has_no_models_refuses_to_run_them(tmp_path):
    with pytest.raises(UsageError, match="feddf: this algorithm needs examples on the server"):
        far(ON_SERVER, tmp_path)


def test_clients_far_away_add_their_noise_too(tmp_path):
    """It is secret, so it is not that of a simulation; what it costs is the same."""
    settings = {"privacy": {"level": "client"}, "run": {"rounds": 2}}
    noisy, simulated = (way("fedper", tmp_path / way.__name__, **settings) for way in (far, near))
    spent = [[row for row in each.rows if row.metric == "epsilon"] for each in (noisy, simulated)]
    assert len(spent[0]) == 2 * len(NAMES)
    assert spent[0] == spent[1]
    assert noisy.weights != simulated.weights


def test_operations_of_clients_far_away_are_counted(tmp_path):
    settings = {"compute": {"count_flops": True}}
    counted = far("fedavg", tmp_path / "far", **settings)
    assert_same_outcome(counted, near("fedavg", tmp_path / "near", **settings))
    flops = [row.value for row in counted.rows if row.metric == "flops"]
    assert len(flops) == 2 * len(NAMES)
    assert all(value > 0 for value in flops)


def test_nor_does_a_model_with_batchnorm_that_stays_local(tmp_path, monkeypatch):
    settings = {"batchnorm": "local", "run": {"rounds": 3, "participation": 0.5}}
    assert_same_outcome(
        far("ditto", tmp_path / "far", **settings), near("ditto", tmp_path / "near", **settings)
    )
