"""Federated averaging with a proximal term (FedProx).

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith: Federated Optimization in Heterogeneous
Networks, MLSys 2020, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import batchable, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client
from consort.training.objectives import pull_towards


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients minimise their loss plus mu/2 times the squared distance to it."""

    trains_only_by_steps: ClassVar[bool] = True

    mu: NonNegativeFloat = 0.01
    """Weight of the proximal term: 0 is FedAvg."""

    @batchable
    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs on h_k(w; w^t) = F_k(w) + mu/2 ||w - w^t||², from the global model w^t."""
        model.load_into(client.model)
        self.local.run(client, adjust=pull_towards(model, self.mu))
        return {"model": Params.of(client.model), "examples": client.examples}
