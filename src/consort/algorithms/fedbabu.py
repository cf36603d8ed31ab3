"""Only the encoder is learnt together; heads wait until the end.

Oh, Kim and Yun: FedBABU: Towards Enhanced Representation for Federated Image Classification,
ICLR 2022, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms.fedper import FedPer
from consort.core.algorithm import on_client
from consort.core.bounds import Count
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client


@dataclass(frozen=True)
class FedBABU(FedPer):
    """Trains encoders under heads that never move, then tunes everything on each client."""

    reports: ClassVar[str] = "tuned"

    tuning_epochs: Count = 10

    @on_client
    def train(self, client: Client, encoder: Params) -> Payload:
        """Local epochs of the encoder; the head keeps its initial weights."""
        encoder.load_into(client.model)
        self.local.run(client, only=("encoder",))
        trained = Params.of(client.model).only("encoder")
        return {"encoder": trained, "examples": client.examples}

    @on_client
    def test(self, client: Client, encoder: Params) -> Payload:
        """Scores under the initial head, and after tuning encoder and head."""
        encoder.load_into(client.model)
        received = client.score()
        self.local.tuning(self.tuning_epochs).run(client)
        return {"global": received, "tuned": client.score()}
