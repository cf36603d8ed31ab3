"""Only encoders are trained during federation; heads are fine-tuned at the end (FedBABU).

Oh, Kim and Yun: FedBABU: Towards Enhanced Representation for Federated Image Classification,
ICLR 2022, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms.fedper import FedPer
from consort.core.algorithm import on_client
from consort.core.bounds import PositiveInt
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client


@dataclass(frozen=True)
class FedBABU(FedPer):
    """Trains encoders under fixed heads, then fine-tunes the whole model on every client."""

    reports: ClassVar[str] = "tuned"
    trains_only_by_steps: ClassVar[bool] = True

    tuning_epochs: PositiveInt = 10

    @on_client(encoder=Model("encoder"), examples=Count())
    def train(self, client: Client, encoder: Params) -> Payload:
        """Local epochs of the encoder; heads keep their initial weights."""
        encoder.load_into(client.model)
        self.local.run(client, only=("encoder",))
        trained = Params.of(client.model).only("encoder")
        return {"encoder": trained, "examples": client.examples}

    @on_client()
    def test(self, client: Client, encoder: Params) -> Payload:
        """Scores with the initial heads, and after fine-tuning encoder and heads."""
        encoder.load_into(client.model)
        received = client.score()
        self.local.tuning(self.tuning_epochs).run(client)
        return {"global": received, "tuned": client.score()}
