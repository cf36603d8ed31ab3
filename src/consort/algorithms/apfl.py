"""A mixture of a personal and the global model, in a learnt proportion (APFL).

Deng, Kamani and Mahdavi: Adaptive Personalized Federated Learning, arXiv 2003.13461, 2020. `train`
is the local part of Algorithm 1, with v the personal model, w the client's copy of the global one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import on_client
from consort.core.bounds import Probability
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params, slots
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import gradients_of_sum, task_losses
from consort.training.optimizers import Optimizer, clip_by_norm, make_optimizer


@dataclass
class Mixture:
    """A personal model v and its share alpha in the mixed model alpha v + (1 - alpha) w.

    The BatchNorm statistics in v are those of the mixed model.
    """

    own: Params
    share: float
    local: LocalTraining
    rate: float
    optimizer: Optimizer

    def with_global(self, model: Params) -> Params:
        """The mixed model."""
        own, other = self.own.without("buffers"), model.without("buffers")
        return (own * self.share + other * (1 - self.share)) | self.own.only("buffers")

    def step(self, client: Client, batch: Examples) -> dict[str, Tensor]:
        """Moves v and alpha; the losses are those of the global copy w, which moves after them."""
        copy = Params.of(client.model, whole=True)
        self.with_global(copy).load_into(client.model, whole=True)
        slope = self._slope(client, batch)
        seen = Params.of(client.model, whole=True).only("buffers")
        copy.load_into(client.model, whole=True)
        towards_own = (self.own - copy).without("buffers")
        self._descend(slope, seen)
        self.share = min(max(self.share - self.rate * towards_own.dot(slope), 0.0), 1.0)
        return task_losses(client, batch)

    def _slope(self, client: Client, batch: Examples) -> Params:
        """The gradient of the loss at the mixed model."""
        live = Params(slots(client.model)).without("buffers")
        losses = self.local.weighted(task_losses(client, batch))
        self.local.checked(sum(loss.item() for loss in losses.values()), client.round)
        grads = gradients_of_sum(losses, list(live), list(live.values()))
        return Params(dict(zip(live, grads, strict=True)))

    def _descend(self, slope: Params, seen: Params) -> None:
        """By the chain rule, the gradient with respect to v is alpha times that of the mixture."""
        grads = list((slope * self.share).values())
        if self.local.clip is not None:
            grads = clip_by_norm(grads, self.local.clip)
        values = [self.own[name].clone() for name in slope]
        self.optimizer.step(values, grads, self.rate)
        self.own = Params(dict(zip(slope, values, strict=True))) | seen


@dataclass(frozen=True)
class APFL(FedAvg):
    """FedAvg, and on every client a mixture of its personal model with the global one.

    As in the paper, the personal model and its share move by the gradient of the mixed model.
    PFLlib moves the personal model by its own gradient, overwrites it with the mixture after every
    round, and shrinks the share by a penalty.
    """

    reports: ClassVar[str] = "personal"

    alpha: Probability = 0.5
    """The share of the personal model before the first step: 0 is FedAvg, 1 is local training."""

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """FedAvg's training of w; in every step v and alpha move as well."""
        model.load_into(client.model)
        mixture = self.mixture(client)
        self.local.run(client, objective=mixture.step)
        client.state["personal"] = mixture.own
        client.state["alpha"] = mixture.share
        return {"model": Params.of(client.model), "examples": client.examples}

    def mixture(self, client: Client) -> Mixture:
        """What this client remembers; at first v is the global model as received."""
        local = self.local
        return Mixture(
            own=client.state.get("personal") or Params.of(client.model, whole=True),
            share=client.state.get("alpha", self.alpha),
            local=local,
            rate=local.rate(client.round, client.rounds),
            optimizer=make_optimizer(local.optimizer, local.momentum, local.weight_decay),
        )

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the global model and of its mixture with the personal one."""
        model.load_into(client.model)
        received = client.score()
        self.mixture(client).with_global(model).load_into(client.model, whole=True)
        return {"global": received, "personal": client.score()}
