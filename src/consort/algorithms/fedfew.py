"""A few server models for many clients.

Few-for-Many Personalized Federated Learning (FedFew): K models of one architecture minimise the
smooth Tchebycheff set objective of all clients' losses, so that every client finds a good one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from consort.aggregation.stch_set import RunningStep, SetWeights, set_weights, smooth_objective
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Count, Positive
from consort.core.messages import Payload, Replies
from consort.core.params import BUFFERS, Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies, UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.mode import moving, use_running_statistics_for_one
from consort.training.objectives import gradients_of_sum, task_losses

_NOISE = 0.01
_FAINTEST = 1e-30  # of the weights that a step can be divided by in single precision


@dataclass(frozen=True)
class Server:
    """The K models."""

    models: list[Params]


@dataclass(frozen=True)
class FedFew(Algorithm[Server]):
    """Every client trains every model; how much that counts depends on who is how badly off."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    models: Count = 3
    """How many server models, the paper's K."""
    mu: Positive = 0.01
    """Smoothness: towards 0 each client counts for its best model only, and the worst client most.

    With `scale = "mean"` choose a larger one (0.2): losses are as many times larger as there are
    clients.
    """
    scale: Literal["share", "mean"] = "share"
    """What a client's loss is multiplied by: its share of all examples, or its examples over the
    mean of all clients, which does not depend on their number."""
    loss: Literal["running", "received"] = "running"
    """The loss that counts: during the last local epoch, or of the model as received."""
    mode: Literal["delta", "gradient"] = "delta"
    """What counts as a client's change: its local training, or a step of `server_lr` along the
    gradient on all its training data at the model it has trained."""
    server_lr: Positive = 0.01
    """Step of `mode = "gradient"`."""
    step: Literal["shared", "full"] = "shared"
    """Whether all models share one unit of step, as published, or each takes a full one."""
    init: Literal["same", "noise", "independent"] = "same"
    choose_on: Literal["validation", "train"] = "validation"
    """The data on which each client chooses its model for the test."""

    def start(self, roster: Roster) -> Server:
        """K copies of the initial model, copies moved a little apart, or K independent draws."""
        check_count(self.models, roster)
        if self.init == "same":
            return Server([roster.shared()] * self.models)
        first, *others = roster.starts(self.models)
        if self.init == "noise":
            others = [first + (other - first) * _NOISE for other in others]
        return Server([first, *others])

    def round(self, server: Server, clients: Clients) -> Server:
        """theta_k <- theta_k + sum_i alpha_i w_ik (theta_ik - theta_k)."""
        scales = self.scales(clients.ask(self.count).each("examples"))
        step = RunningStep(self.mu)
        present = clients.among(scales)
        for client, reply in present.stream(self.train, models=server.models):
            step.add(client, [scales[client] * x for x in reply["losses"]], reply["changes"])
        if not step.losses:
            raise NoReplies("no client trained the models")
        weights = set_weights(step.table, self.mu)
        note_weights(clients, list(step.losses), weights)
        clients.note("objective", smooth_objective(step.table, self.mu))
        masses = weights.gradient.sum(0).tolist()
        full = self.step == "full"
        return Server(
            [
                moved(model, change, mass, full)
                for model, change, mass in zip(server.models, step.steps, masses, strict=True)
            ]
        )

    @on_client
    def count(self, client: Client) -> Payload:
        """The weights of losses depend on how many examples all others have."""
        return {"examples": client.examples}

    def scales(self, examples: Mapping[str, int]) -> dict[str, float]:
        """What the losses of every client that has examples are multiplied by."""
        counts = {client: count for client, count in examples.items() if count}
        total = sum(counts.values())
        whole = total if self.scale == "share" else total / max(len(counts), 1)
        return {client: count / whole for client, count in counts.items()}

    @on_client
    def train(self, client: Client, models: list[Params]) -> Payload:
        """Local epochs from every model."""
        answers = [self.improve(client, model) for model in models]
        return {
            "changes": [change for change, _ in answers],
            "losses": [loss for _, loss in answers],
        }

    def improve(self, client: Client, model: Params) -> tuple[Params, float]:
        """How one model should change for this client, and how well it did."""
        model.load_into(client.model)
        received = 0.0
        if self.loss == "received":
            received = self.local.loss(client, client.data.train)
            self.local.checked(received, client.round)
        running = self.run_local(client)
        change = Params.of(client.model) - model
        if self.mode == "gradient":
            change = change.only(BUFFERS) | self.gradient(client) * -self.server_lr
        return change, running if self.loss == "running" else received

    def run_local(self, client: Client) -> float:
        """All local epochs; the mean loss per example in the last of them, before each step."""
        last: deque[tuple[int, float]] = deque(maxlen=-(-client.examples // self.local.batch))

        def noted(client: Client, batch: Examples) -> dict[str, Tensor]:
            losses = task_losses(client, batch)
            weighted = self.local.weighted(losses).values()
            last.append((len(batch), sum(loss.item() for loss in weighted)))
            return losses

        self.local.run(client, objective=noted)
        return sum(n * loss for n, loss in last) / sum(n for n, _ in last)

    def gradient(self, client: Client) -> Params:
        """The gradient of the mean loss of all training examples at the trained model."""
        with moving(client.model, ()) as (names, params):
            total = Params({n: torch.zeros_like(p) for n, p in zip(names, params, strict=True)})
            for batch in client.data.train.batches(self.local.batch):
                use_running_statistics_for_one(client.model, batch)
                losses = self.local.weighted(task_losses(client, batch))
                grads = gradients_of_sum(losses, names, params)
                part = Params(dict(zip(names, grads, strict=True)))
                total = total + part * (len(batch) / client.examples)
        return total

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model each client chooses, as received."""
        return clients.ask(self.test, models=server.models)

    @on_client
    def test(self, client: Client, models: list[Params]) -> Payload:
        """Scores of the model that does best on data kept for the choice, and which it is."""
        examples = client.data.validation if self.choose_on == "validation" else client.data.train
        chosen = self.local.choose(client, models, examples or client.data.train)
        return {"personal": client.score(), "chosen_model": chosen}


def check_count(models: int, roster: Roster) -> None:
    """Refuses more models than there are clients to use them."""
    clients = len(roster.ids)
    if models > clients:
        raise UsageError(
            f"there are more models ({models}) than clients ({clients}): set models to at most "
            f"{clients}"
        )


def moved(model: Params, step: Params, mass: float, full: bool) -> Params:
    """The model after its step; running statistics always take a full one."""
    whole = step * (1 / mass if mass > _FAINTEST else 0.0)
    return model + (whole if full else step | whole.only(BUFFERS))


def note_weights(clients: Clients, ids: list[str], weights: SetWeights) -> None:
    """Keeps who counted how much, and with which model."""
    clients.note("client_weight", dict(zip(ids, weights.clients.tolist(), strict=True)))
    for number, column in enumerate(weights.models.T.tolist()):
        clients.note("model_weight", dict(zip(ids, column, strict=True)), part=str(number))
