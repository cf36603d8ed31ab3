"""Recipes use what a package brings: evaluations, obfuscations and protections."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from tests.installed import IMPORT, put_package

from consort.engines.choice import EngineChoice
from consort.errors import UsageError
from consort.experiment.allocation import seats_of
from consort.experiment.assembly import assemble
from consort.experiment.loading import recipe_of
from consort.experiment.preparation import prepare_run
from consort.experiment.recipe import Recipe

SOURCE = (
    IMPORT
    + '''
from dataclasses import dataclass, replace
import numpy as np
import torch
from consort import Params, Protection


@dataclass(frozen=True)
class Extra:
    scale: float
    held_out: int
    tasks = {"norm": {"metric": "weights", "higher_is_better": True}}

    def prepare(self):
        pass

    def added_to(self, scores, model, data, client, last):
        size = sum(float(p.detach().abs().sum()) for p in model.parameters())
        scores["test"]["tasks"]["norm"] = {"weights": self.scale * size}
        return scores


@dataclass(frozen=True)
class Norm:
    """How large weights are."""

    __pydantic_config__ = {"extra": "forbid"}
    scale: float = 2.0
    held_out: int = 10

    def kept(self, dataset):
        rows = len(dataset) - self.held_out
        few, labels = dataset.examples.rows(0, rows), dataset.labels[:rows]
        return replace(dataset, examples=few, labels=labels)

    def extra(self, clients, load, data, seed):
        whole = len(load(data, seed))
        assert all(len(client.dataset) == whole - self.held_out for client in clients.values())
        return Extra(self.scale, self.held_out)


@dataclass(frozen=True)
class Dimmed:
    factor: float = 0.5

    def __call__(self, inputs, seed):
        return inputs * self.factor


@dataclass(frozen=True)
class Rounded(Protection):
    """Clients send rounded numbers."""

    __pydantic_config__ = {"extra": "forbid"}
    digits: int = 3

    def client(self, handler, setting):
        def rounded(request):
            content = handler(request)
            if "model" in content:
                model = content["model"].items()
                content["model"] = Params({n: t.round(decimals=self.digits) for n, t in model})
            return content

        return rounded


plugin = Plugin(
    evaluations={"norm": "my_lab:Norm"},
    obfuscations={"dimmed": "my_lab:Dimmed"},
    protections={"rounded": "my_lab:Rounded"},
)
'''
)


@pytest.fixture(autouse=True)
def _lab(site):
    put_package(site, "my-lab", SOURCE)


def recipe(**changes: Any) -> Recipe:
    table = {
        "clients": 2,
        "data": {"name": "synthetic_vectors", "examples": 60, "classes": 3, "features": 4},
        "model": {"name": "mlp"},
        "run": {"rounds": 2},
        "algorithms": {"fedavg": {}},
    }
    return recipe_of({**table, **changes}, "lab.toml")


def test_an_evaluation_of_a_package_is_measured_and_described(tmp_path):
    run = prepare_run(recipe(evaluations={"norm": {"scale": 3.0}}), "fedavg", 0, tmp_path)
    rows = [row for row in run.go() if row.task == "norm"]
    assert {(row.round, row.client, row.metric) for row in rows} == {
        (r, f"client-{c}", "weights") for r in (1, 2) for c in (0, 1)
    }
    assert all(row.value > 0 for row in rows)


def test_its_data_are_held_out_of_the_clients_data():
    made = assemble(recipe(evaluations={"norm": {}}), 0, None)
    clients = made.description["clients"].values()
    assert sum(c["train"] + c["validation"] + c["test"] for c in clients) == 50
    assert made.description["tasks"]["norm"] == {"metric": "weights", "higher_is_better": True}


def test_its_options_are_written_down_with_defaults():
    given = recipe(evaluations={"norm": {"scale": 3}})
    assert given.table["evaluations"] == {"norm": {"scale": 3.0, "held_out": 10}}
    assert recipe(evaluations=given.table["evaluations"]).table == given.table


def test_those_of_verification_are_too_under_the_keys_they_always_had():
    written = recipe(verification={"references": 3}, unseen={"few": {"users": 2}}).table
    assert written["verification"] == {
        "references": 3, "tests": 10, "forgeries": 0, "repetitions": 5, "c": 1.0, "gamma": 2.0**-11,
    }  # fmt: skip
    assert written["unseen"] == {"few": {"users": 2, "data": {}}}
    assert written["evaluations"] == {}


@pytest.mark.parametrize(("changes", "message"), [
    ({"evaluations": {"nrom": {}}}, "no evaluation 'nrom': did you mean 'norm'"),
    ({"evaluations": {"norm": {"scal": 1}}}, "unknown key evaluations.norm.scal: "),
    ({"evaluations": {"verification": {}}}, r"write it as \[verification\]"),
    ({"obfuscation": {"name": "dim"}}, "no obfuscation 'dim': did you mean 'dimmed'"),
    ({"obfuscation": {"name": "dimmed", "factor": "x"}}, "obfuscation.factor"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_when_the_recipe_is_read(changes, message):
    with pytest.raises(UsageError, match=rf"lab\.toml: .*{message}"):
        recipe(**changes)


def test_an_obfuscation_of_a_package_is_used():
    plain, dimmed = (
        seats_of(recipe(obfuscation=way), 0, None)["client-0"].load().train.inputs
        for way in (None, {"name": "dimmed", "factor": 0.25})
    )
    assert torch.equal(dimmed, 0.25 * plain)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_protection_of_a_package_is_at_work(tmp_path, workers):
    given = recipe(protection={"rounded": {"digits": 1}}, run={"rounds": 1})
    run = prepare_run(given, "fedavg", 0, tmp_path, engine=EngineChoice(workers=workers))
    run.go()
    for tensor in run.server.model.values():  # the mean of two clients with equally many examples
        assert torch.allclose(tensor * 20, (tensor * 20).round(), atol=1e-4)
    assert json.loads((tmp_path / "run.json").read_text())["rounded"] == {"digits": 1}


def test_an_algorithm_has_its_own_options_of_a_protection():
    given = recipe(
        protection={"rounded": {}},
        algorithms={"fedavg": {}, "fedprox": {"protection": {"rounded": {"digits": 5}}}},
    )
    assert [p.digits for name in given.algorithms for p in given.protections(name)] == [3, 5]


def test_wrong_protections_are_refused_when_the_recipe_is_read():
    for table, message in (
        ({"rounded": {"digit": 1}}, r"unknown key protection\.rounded\.digit: 'digit': did you"),
        ({"bent": {}}, "there is no protection 'bent'"),
        ({"privacy": {"level": "client"}}, r"protection\.privacy: write it as \[privacy\]"),
    ):
        with pytest.raises(UsageError, match=message):
            recipe(protection=table)
