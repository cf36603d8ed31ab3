"""Averages updates that are normalised by how far a client could move (FedNova).

Wang, Liu, Liang, Joshi and Poor: Tackling the Objective Inconsistency Problem in Heterogeneous
Federated Optimization, NeurIPS 2020, Section 4, for SGD with and without momentum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms._guard import most_steps
from consort.algorithms.fedavg import FedAvg, Server
from consort.core.algorithm import Clients, on_client
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import BUFFERS, Params
from consort.errors import NoReplies, UsageError
from consort.training.client import Client


@dataclass(frozen=True)
class FedNova(FedAvg):
    """FedAvg in which clients that take more steps do not count more for it."""

    trains_only_by_steps: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.local.optimizer != "sgd" or self.local.weight_decay:
            raise UsageError(
                "fednova knows how SGD accumulates gradients: set local.optimizer = 'sgd' and "
                "leave out weight_decay"
            )

    def round(self, server: Server, clients: Clients) -> Server:
        """x -= tau_eff * sum of p_i (eta d_i), with tau_eff = sum of p_i ||a_i||_1."""
        replies = clients.ask(self.train, model=server.model)
        n = sum(replies.each("examples").values())
        if not n:
            raise NoReplies("no client with examples answered")
        p = {client: reply["examples"] / n for client, reply in replies.items()}
        tau_eff = sum(p[i] * self.a(reply["steps"]) for i, reply in replies.items())
        d = replies.mean("direction", weight="examples")
        statistics = replies.mean("statistics", weight="examples")
        return Server((server.model.without(BUFFERS) - tau_eff * d) | statistics)

    @on_client(
        direction=Model(without=(BUFFERS,)),
        statistics=Model(BUFFERS),
        steps=lambda self, _: most_steps(self.local),
        examples=Count(),
    )
    def train(self, client: Client, model: Params) -> Payload:
        """eta d_i = (x - x_i) / ||a_i||_1 after tau_i local steps."""
        model.load_into(client.model)
        tau = self.local.run(client).steps
        trained = Params.of(client.model)
        return {
            "direction": (model - trained).without(BUFFERS) / max(self.a(tau), 1.0),
            "statistics": trained.only(BUFFERS),
            "steps": tau,
            "examples": client.examples,
        }

    def a(self, tau: int) -> float:
        """||a_i||_1: how often gradients count in tau steps; tau itself without momentum."""
        total = velocity = 0.0
        for _ in range(tau):
            velocity = 1 + self.local.momentum * velocity
            total += velocity
        return total
