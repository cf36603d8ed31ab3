"""A personal model beside the global one, regularised towards it (Ditto).

Li, Hu, Beirami and Smith: Ditto: Fair and Robust Federated Learning Through Personalization,
ICML 2021, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import on_client
from consort.core.bounds import NonNegativeFloat, PositiveInt
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client
from consort.training.objectives import pull_towards

PERSONAL = "personal"


@dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg, and on every client a personal model that is pulled towards the global one."""

    reports: ClassVar[str] = "personal"
    trains_only_by_steps: ClassVar[bool] = True

    strength: NonNegativeFloat = 0.1
    """Weight of the pull, the paper's lambda: 0 is local training."""
    personal_epochs: PositiveInt = 1

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """FedAvg's training; then the personal model v on F_k(v) + lambda/2 ||v - w||²."""
        if PERSONAL not in client.state:
            model.load_into(client.model)
            client.keep(PERSONAL)
        answer = super().train(client, model)
        with client.beside(PERSONAL):
            replace(self.local, epochs=self.personal_epochs, steps=None).run(
                client, adjust=pull_towards(model, self.strength)
            )
            client.keep(PERSONAL)
        return answer

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the global model and of the personal one."""
        model.load_into(client.model)
        received = client.score()
        client.recall(PERSONAL)
        return {"global": received, "personal": client.score()}
