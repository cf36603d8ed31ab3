"""A personal model beside the averaged encoder and decoder, held close to them.

Li, Hu, Beirami and Smith: Ditto: Fair and Robust Federated Learning Through Personalization,
ICML 2021, adapted to unlike tasks as in Lu et al.: FedHCA², CVPR 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from consort.algorithms.ditto import PERSONAL
from consort.algorithms.fedavg_parts import FedAvgParts, install
from consort.core.algorithm import on_client
from consort.core.bounds import Count, NotNegative
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client
from consort.training.objectives import pull_towards


@dataclass(frozen=True)
class DittoParts(FedAvgParts):
    """FedAvg of parts, and on every client a personal model pulled towards what it received."""

    strength: NotNegative = 0.1
    """Weight of the pull, the paper's lambda: 0 is training alone."""
    personal_epochs: Count = 1

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """FedAvg's work for the others, then the personal model."""
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

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the personal model, and of what was received under the own heads."""
        install(client, model)
        received = client.score()
        client.recall(PERSONAL)
        return {"global": received, "personal": client.score()}
