"""A shared encoder under personal heads, trained in turns.

Collins, Hassani, Mokhtari and Shakkottai: Exploiting Shared Representations for Personalized
Federated Learning, ICML 2021, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from consort.algorithms.fedper import FedPer
from consort.core.bounds import Count
from consort.training.client import Client


@dataclass(frozen=True)
class FedRep(FedPer):
    """FedPer that first fits the head to the received encoder, then the encoder to that head."""

    head_epochs: Count = 1

    def fit(self, client: Client) -> None:
        """The head on a frozen encoder, then the encoder under a frozen head."""
        replace(self.local, epochs=self.head_epochs, steps=None).run(
            client, only=("heads", "decoders")
        )
        self.local.run(client, only=("encoder",))
