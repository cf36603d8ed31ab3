"""A shared encoder with personal heads, trained one after the other (FedRep).

Collins, Hassani, Mokhtari and Shakkottai: Exploiting Shared Representations for Personalized
Federated Learning, ICML 2021. `fit` is the client's part of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from consort.algorithms.fedper import FedPer
from consort.core.bounds import PositiveInt
from consort.training.client import Client


@dataclass(frozen=True)
class FedRep(FedPer):
    """FedPer that first trains the head on the received encoder, then the encoder under it."""

    trains_only_by_steps: ClassVar[bool] = True

    head_epochs: PositiveInt = 1
    """Local epochs of the head, for the paper's tau updates."""

    def fit(self, client: Client) -> None:
        """The heads on the frozen encoder, then the encoder under the frozen heads."""
        replace(self.local, epochs=self.head_epochs, steps=None).run(
            client, only=("heads", "decoders")
        )
        self.local.run(client, only=("encoder",))
