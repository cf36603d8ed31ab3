"""Corners where parts meet: what is empty, unsendable, overlapping, or asked for again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import torch as safetensors
from tests.helpers import tiny_federation, tiny_member

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedper import FedPer
from consort.algorithms.local_only import LocalOnly
from consort.core.algorithm import on_client
from consort.core.params import Params, mean
from consort.core.wire import decode, encode
from consort.errors import ClientFailed, Refused, UsageError
from consort.federation.federation import EVERYONE, Federation
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Flaky(FedAvg):
    folder: str = ""

    @on_client
    def train(self, client, model):
        mark = Path(self.folder, f"{client.id}-{client.round}")
        if client.id in ("c1", "c4") and not mark.exists():
            mark.touch()
            raise RuntimeError("once")
        return FedAvg.train(self, client, model)


def test_retrying_on_workers_gives_the_same_model(tmp_path):
    models = []
    for workers in (1, 2):
        (tmp_path / str(workers)).mkdir()
        algorithm = Flaky(folder=str(tmp_path / str(workers)))
        run = Run(
            tiny_federation(8), algorithm, Schedule(rounds=2, on_error="retry"), workers=workers
        )
        run.go()
        models.append(run.server.model)
    assert models[0].equals(models[1])


@dataclass(frozen=True)
class Numpy(FedAvg):
    @on_client
    def train(self, client, model):
        return {**FedAvg.train(self, client, model), "extra": np.ones(2)}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_answer_that_cannot_be_sent_is_the_same_error_on_every_engine(workers):
    with pytest.raises(ClientFailed, match="client c0: a ndarray cannot be sent"):
        Run(tiny_federation(2), Numpy(), Schedule(rounds=1), workers=workers).go()


def test_nothing_is_a_vector_space_too():
    none = Params({})
    assert len(none + none) == len(none * 2.0) == len(-none) == len(mean([none, none])) == 0
    none.load_into(torch.nn.Linear(1, 1))


def test_fedper_runs_on_an_encoder_without_parameters():
    federation = tiny_federation(2, model={"name": "mlp", "hidden": []})
    assert len(list(Run(federation, FedPer(), Schedule(rounds=1)).go())) > 0


def test_shapes_are_never_broadcast():
    a, b = Params({"w": torch.zeros(2)}), Params({"w": torch.ones(1)})
    for combine in (lambda: a + b, lambda: a - b, lambda: a.dot(b), lambda: mean([a, b])):
        with pytest.raises(UsageError, match="'w' has different shapes"):
            combine()


def test_overlapping_views_arrive_apart():
    t = torch.arange(4.0)
    assert [x.tolist() for x in decode(encode([t, t[1:]]))] == [[0, 1, 2, 3], [1, 2, 3]]


def test_endless_nesting_is_refused():
    data = safetensors.save({}, metadata={"consort": "[" * 5000 + "]" * 5000})
    with pytest.raises(Refused):
        decode(data)


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_mean_folders_are_refused(name):
    with pytest.raises(UsageError):
        Federation({name: tiny_member("a")})


def test_a_client_called_like_the_pool_is_not_replaced_by_it():
    with pytest.raises(UsageError, match=EVERYONE):
        Federation({"a": tiny_member("a"), EVERYONE: tiny_member("b")}).pooled()


def test_evaluation_sees_what_the_round_left_behind():
    """The scores after a round are of the state that the round wrote, not of the one before."""
    algorithm = LocalOnly(LocalTraining(lr=0.5, epochs=5))
    losses = [
        row.value
        for row in Run(tiny_federation(1), algorithm, Schedule(rounds=2)).go()
        if row.metric == "loss" and row.split == "validation"
    ]
    untrained = Run(tiny_federation(1), LocalOnly(LocalTraining(lr=1e-12)), Schedule(rounds=1))
    (start,) = [r.value for r in untrained.go() if r.metric == "loss" and r.split == "validation"]
    assert losses[0] < 0.9 * start
    assert losses[1] < losses[0]
