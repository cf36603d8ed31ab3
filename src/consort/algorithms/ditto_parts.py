"""A personal model beside averaged encoders and decoders, regularised towards them.

Li, Hu, Beirami and Smith: Ditto: Fair and Robust Federated Learning Through Personalization,
ICML 2021, adapted to heterogeneous tasks as in Lu et al.: FedHCA², CVPR 2024, supplement C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from consort.algorithms._parts import TRAVELLING, install
from consort.algorithms.fedavg_parts import FedAvgParts
from consort.core.algorithm import on_client
from consort.core.bounds import NonNegativeFloat, PositiveInt
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client
from consort.training.objectives import pull_towards

PERSONAL = "personal"


@dataclass(frozen=True)
class DittoParts(FedAvgParts):
    """FedAvg of encoders and decoders, and a personal model pulled towards what was received."""

    strength: NonNegativeFloat = 0.1
    """Weight of the pull, the paper's lambda: 0 is local training."""
    personal_epochs: PositiveInt = 1

    @on_client(model=TRAVELLING)
    def train(self, client: Client, model: Params) -> Payload:
        """FedAvg's training; then the personal model v on F_k(v) + lambda/2 ||v - w||²."""
        if PERSONAL not in client.state:
            install(client, model)
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
        """Scores of the averaged parts with the client's own heads, and of the personal model."""
        install(client, model)
        received = client.score()
        client.recall(PERSONAL)
        return {"global": received, "personal": client.score()}
