"""No privacy: one model is trained on the union of all data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class Centralised(FedAvg):
    """Trains on everybody's data in one place, for as many epochs: a ceiling, not a method."""

    pools_data: ClassVar[bool] = True
