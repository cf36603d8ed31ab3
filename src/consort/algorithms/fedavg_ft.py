"""Federated averaging, tested after local fine-tuning: the baseline for personalised methods.

A personalised method that is tested after local training must be compared with this one, not
with the global model of FedAvg as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import on_client
from consort.core.bounds import PositiveInt
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client


@dataclass(frozen=True)
class FedAvgFT(FedAvg):
    """FedAvg whose global model every client fine-tunes on its own data before the test."""

    reports: ClassVar[str] = "tuned"
    trains_only_by_steps: ClassVar[bool] = True

    tuning_epochs: PositiveInt = 1

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the model as received, and after local epochs whose result is discarded."""
        model.load_into(client.model)
        received = client.score()
        self.local.tuning(self.tuning_epochs).run(client)
        return {"global": received, "tuned": client.score()}
