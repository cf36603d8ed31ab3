"""Fair averaging: clients with a larger loss weigh more (q-FedAvg).

Li, Sanjabi, Beirami and Smith: Fair Resource Allocation in Federated Learning, ICLR 2020,
Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from consort.algorithms.fedavg import FedAvg, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Count, Model, Number
from consort.core.messages import Payload
from consort.core.params import BUFFERS, Params
from consort.errors import Failure, UsageError
from consort.training.client import Client

SMALLEST_LOSS = 1e-10
"""Stands for a loss of 0, which has no negative power."""


@dataclass(frozen=True)
class QFedAvg(FedAvg):
    """Minimises the mean of loss^(q+1): the larger q, the more even the clients' losses."""

    q: NonNegativeFloat = 1.0
    """The weight of fairness: 0 is FedAvg."""

    def __post_init__(self) -> None:
        if self.local.lr == 0:
            raise UsageError("qfedavg divides by the learning rate: set local.lr above 0")

    def round(self, server: Server, clients: Clients) -> Server:
        """w -= mean of Delta_k / mean of h_k, weighted by examples."""
        replies = clients.ask(self.train, model=server.model)
        statistics = replies.mean("statistics", weight="examples")
        direction = replies.mean("direction", weight="examples")
        total = sum(reply["examples"] for reply in replies.values())
        bound = sum(reply["examples"] / total * reply["bound"] for reply in replies.values())
        return Server((server.model.without(BUFFERS) - direction / bound) | statistics)

    @on_client(
        direction=Model(without=(BUFFERS,)),
        bound=Number(1e-300),
        statistics=Model(BUFFERS),
        examples=Count(),
    )
    def train(self, client: Client, model: Params) -> Payload:
        """Delta_k = F_k^q g and h_k = q F_k^(q-1) ||g||² + L F_k^q, with L = 1 / lr.

        F_k is the loss before training, g = L (w - w_k) the update as a gradient.
        """
        model.load_into(client.model)
        loss = self.loss(client)
        self.local.run(client)
        trained = Params.of(client.model)
        steepness = 1 / self.local.rate(client.round, client.rounds)
        gradient = steepness * (model - trained).without(BUFFERS)
        return {
            "direction": loss**self.q * gradient,
            "bound": self.q * loss ** (self.q - 1) * gradient.dot(gradient)
            + steepness * loss**self.q,
            "statistics": trained.only(BUFFERS),
            "examples": client.examples,
        }

    @torch.no_grad()
    def loss(self, client: Client) -> float:
        """F_k: the mean loss over all training examples, in evaluation mode."""
        mean = self.local.checked(self.local.loss(client, client.data.train), client.round)
        if mean < 0:
            raise Failure("its loss is negative, so it has no power q: qfedavg needs losses ≥ 0")
        return max(mean, SMALLEST_LOSS)
