"""A few server models for many clients (FedFew).

Guo, Zhang, Lin, Li, Tang and Zhang: Few-for-Many Personalized Federated Learning. K models of one
architecture minimise the smooth Tchebycheff set objective of all clients' losses, so that every
client finds a good one. `round` is one round of Algorithm 1, with theta_k the models, L_ik the loss
of model k on client i, and alpha_i and w_ik the weights of Equations 11 and 12. Where the released
code differs from Algorithm 1, the defaults follow the code.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from consort.aggregation.stch_set import RunningStep, set_weights, smooth_objective
from consort.algorithms._model_sets import check_count, note_weights
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeInt, PositiveFloat, PositiveInt
from consort.core.contract import Count, Model, Number, Whole
from consort.core.contract_groups import Several
from consort.core.messages import Payload, Replies
from consort.core.params import BUFFERS, Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.mode import moving, use_running_statistics_for_one
from consort.training.objectives import gradients_of_sum, task_losses

_NOISE = 0.01
_FAINTEST = 1e-30  # of the weights that a step can be divided by in single precision


@dataclass(frozen=True)
class Server:
    """The K models theta_k."""

    models: list[Params]


@dataclass(frozen=True)
class FedFew(Algorithm[Server]):
    """Every client trains every model; clients with larger losses count more."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    models: PositiveInt = 3
    """How many server models, the paper's K."""
    mu: PositiveFloat = 0.01
    """Smoothness: towards 0, every client counts only for its best model, and only the client with
    the largest loss counts."""
    loss: Literal["running", "received"] = "running"
    """Whether L_ik is the loss during the last local epoch, as in the code, or the loss of the
    received model."""
    mode: Literal["delta", "gradient"] = "delta"
    """What a client sends: the change by its local training, as in the code, or, as in Algorithm 1,
    a step of `server_lr` along the gradient at the trained model."""
    server_lr: PositiveFloat = 0.01
    """The learning rate of `mode = "gradient"`, the paper's eta."""
    step: Literal["shared", "full"] = "shared"
    """Whether all models share one step, as published, or each takes a full one."""
    init: Literal["same", "noise", "independent"] = "same"
    """Whether models start as copies, as copies with some noise, or as independent draws."""
    choose_on: Literal["validation", "train"] = "validation"
    """The data on which every client chooses its model for the test."""
    tuning_epochs: NonNegativeInt = 0
    """Epochs for which every client trains each model before it chooses; the code has 1."""

    def start(self, roster: Roster) -> Server:
        """The K initial models, see `init`."""
        check_count(self.models, roster)
        if self.init == "same":
            return Server([roster.shared()] * self.models)
        first, *others = roster.starts(self.models)
        if self.init == "noise":
            others = [first + (other - first) * _NOISE for other in others]
        return Server([first, *others])

    def round(self, server: Server, clients: Clients) -> Server:
        """theta_k += sum over i of alpha_i w_ik (theta_ik - theta_k) (Equation 13)."""
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

    @on_client(examples=Count())
    def count(self, client: Client) -> Payload:
        """The number of examples, on which the weights of all losses depend."""
        return {"examples": client.examples}

    def scales(self, examples: Mapping[str, int]) -> dict[str, float]:
        """n_i / sum of n_j, by which a client's losses are multiplied (footnote 2)."""
        counts = {client: count for client, count in examples.items() if count}
        total = sum(counts.values())
        return {client: count / total for client, count in counts.items()}

    @on_client(
        changes=lambda self, _: Several(Model(), self.models),
        losses=lambda self, _: Several(Number(), self.models),
    )
    def train(self, client: Client, models: list[Params]) -> Payload:
        """Local epochs from every model."""
        answers = [self.improve(client, model) for model in models]
        return {
            "changes": [change for change, _ in answers],
            "losses": [loss for _, loss in answers],
        }

    def improve(self, client: Client, model: Params) -> tuple[Params, float]:
        """How one model should change for this client, and its loss."""
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
        """Local epochs; returns the mean loss per example over the last one, before each step."""
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
        """The model that each client chooses, as received or after `tuning_epochs`."""
        return clients.ask(self.test, models=server.models)

    @on_client(chosen_model=lambda self, _: Whole(0, self.models - 1))
    def test(self, client: Client, models: list[Params]) -> Payload:
        """Scores of the model with the smallest loss on the data for the choice, and its number."""
        examples = client.data.validation if self.choose_on == "validation" else client.data.train
        if self.tuning_epochs:
            models = [self.tuned(client, model) for model in models]
        chosen = self.local.choose(client, models, examples or client.data.train)
        return {"personal": client.score(), "chosen_model": chosen}

    def tuned(self, client: Client, model: Params) -> Params:
        """The model after local epochs, whose result nobody else sees."""
        model.load_into(client.model)
        self.local.tuning(self.tuning_epochs).run(client)
        return Params.of(client.model, whole=True)


def moved(model: Params, step: Params, mass: float, full: bool) -> Params:
    """The model after its step; BatchNorm statistics always take a full one.

    Args:
        model: The model.
        step: The sum of all changes, times their weights.
        mass: The sum of these weights.
        full: Whether the step is divided by `mass`.
    """
    whole = step * (1 / mass if mass > _FAINTEST else 0.0)
    return model + (whole if full else step | whole.only(BUFFERS))
