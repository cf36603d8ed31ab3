"""A client method finds its model as it was built, whatever was called before.

A hand-written training loop with dropout notices everything that an earlier call left behind: the
mode of evaluation, gradients, frozen parameters, weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.contract.helpers import ROUGH
from tests.helpers import tiny_federation

from consort import Algorithm, LocalTraining, Params, Run, Schedule, on_client
from consort.core.messages import Payload
from consort.run.observer import Observer
from consort.training.client import Client
from consort.training.objectives import task_losses


@dataclass(frozen=True)
class Server:
    model: Params


@dataclass(frozen=True)
class ByHand(Algorithm[Server]):
    """Federated averaging whose clients train in a loop of their own, and tidy nothing up."""

    local: LocalTraining = field(default_factory=LocalTraining)

    def start(self, roster):
        return Server(roster.shared())

    def round(self, server, clients):
        return Server(clients.ask(self.train, model=server.model).mean("model"))

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        assert client.model.training
        assert all(module.training for module in client.model.modules())
        assert all(p.grad is None and p.requires_grad for p in client.model.parameters())
        assert Params.of(client.model).size == model.size
        model.load_into(client.model)
        optimizer = torch.optim.SGD(client.model.parameters(), lr=0.1)
        for batch in client.data.train.batches(8):
            sum(task_losses(client, batch).values()).backward()
            optimizer.step()
        answer = Params.of(client.model)
        client.model.encoder.requires_grad_(False)  # the next call must not notice
        return {"model": answer}

    def evaluate(self, server, clients):
        return clients.ask(self.test, model=server.model)

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        assert client.model.training
        model.load_into(client.model)
        return {"global": client.score()}


class Stops(Observer):
    """Ends a run after a round, as a crash would."""

    def measured(self, round: int, rows: Any) -> None:
        if round == 2:
            raise KeyboardInterrupt


def finished(every: int, folder: Path | None = None, workers: int = 1, **run: Any) -> Params:
    schedule = Schedule(rounds=4, evaluate_every=every)
    made = Run(tiny_federation(3, model=ROUGH), ByHand(), schedule, 0, folder, workers, **run)
    made.go()
    return made.server.model


def test_evaluation_changes_nothing_that_is_trained():
    often, never = finished(1), finished(0)
    assert all(torch.equal(often[name], never[name]) for name in often)


def test_a_resumed_run_is_the_unbroken_one(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        finished(1, tmp_path, observer=Stops())
    resumed, straight = finished(1, tmp_path), finished(1)
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


def test_workers_train_the_same():
    apart, together = finished(1, workers=2), finished(1)
    assert all(torch.equal(apart[name], together[name]) for name in together)
