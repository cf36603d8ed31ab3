"""A global model that every client mixes element-wise with its own before training (FedALA).

Zhang, Hua, Wang, Song, Xue, Ma and Guan: FedALA: Adaptive Local Aggregation for Personalized
Federated Learning, AAAI 2023. `train` is the client's part of Algorithm 1; `mixing` is the paper's
matrix of weights W.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import pstdev
from typing import ClassVar

import torch
from torch import Tensor

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import on_client
from consort.core.bounds import Fraction, PositiveFloat, PositiveInt
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import BUFFERS, Params
from consort.training.client import Client
from consort.training.local import LocalTraining

WINDOW, CALM, MOST_PASSES = 10, 0.1, 100
"""The first time, W is learnt until the standard deviation of the last 10 losses is below 0.1, or
for 100 passes."""


@dataclass(frozen=True)
class FedALA(FedAvg):
    """FedAvg whose clients learn how much of the global model's last layers to take."""

    reports: ClassVar[str] = "personal"

    layers: PositiveInt = 2
    """How many tensors are mixed, counted from the end of the model, the paper's p."""
    share: Fraction = 0.8
    """Share of the training examples from which the mixing is learnt, the paper's s."""
    mixing_lr: PositiveFloat = 1.0
    """Learning rate of the mixing, the paper's eta."""

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the mixed model."""
        self.install(client, model)
        self.local.run(client)
        trained = Params.of(client.model)
        client.state["own"] = trained.only(*list(trained.without(BUFFERS))[-self.layers :])
        return {"model": trained, "examples": client.examples}

    def install(self, client: Client, model: Params) -> None:
        """Loads the global model, its last layers mixed with the client's own if it has trained."""
        model.load_into(client.model)
        if "own" in client.state:
            own: Params = client.state["own"]
            mixing = self.learn_mixing(client, own, model.only(*own))
            _mixed(own, model, mixing).load_into(client.model)
            model.only(BUFFERS).load_into(client.model)
            client.state["mixing"] = mixing

    def learn_mixing(self, client: Client, own: Params, received: Params) -> Params:
        """W -= eta dL/dmixture * (received - own), cut to [0, 1]; the first time in many passes."""
        ones = {name: torch.ones_like(tensor) for name, tensor in own.items()}
        mixing = dict(client.state.get("mixing", ones))
        gap = received - own

        def move_mixing(
            names: Sequence[str], values: Sequence[Tensor], grads: Sequence[Tensor]
        ) -> list[Tensor]:
            for name, grad in zip(names, grads, strict=True):
                mixing[name] = (mixing[name] - self.mixing_lr * grad * gap[name]).clamp(0, 1)
            mixed = _mixed(own, received, mixing)
            return [value - mixed[name] for name, value in zip(names, values, strict=True)]

        _mixed(own, received, mixing).load_into(client.model)
        # A step of rate 1 along the way to the new mixture arrives there.
        local = LocalTraining(lr=1.0, batch=self.local.batch, task_weights=self.local.task_weights)
        pupil, losses = self.with_a_sample(client), list[float]()
        for _ in range(1 if "mixing" in client.state else MOST_PASSES):
            losses.append(local.run(pupil, adjust=move_mixing, only=tuple(own)).loss)
            if len(losses) >= WINDOW and pstdev(losses[-WINDOW:]) < CALM:
                break
        return Params(mixing)

    def with_a_sample(self, client: Client) -> Client:
        """The client with a random share of its training examples."""
        order = torch.randperm(client.examples, generator=client.generator)
        sample = client.data.train.take(order[: ceil(self.share * client.examples)])
        return replace(client, data=replace(client.data, train=sample))

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the global model and of its mixture with the client's own."""
        model.load_into(client.model)
        received = client.score()
        self.install(client, model)
        return {"global": received, "personal": client.score()}


def _mixed(own: Params, received: Params, mixing: Mapping[str, Tensor]) -> Params:
    return Params({name: torch.lerp(own[name], received[name], mixing[name]) for name in own})
