"""No privacy: one model is trained on the union of all data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms.fedavg import FedAvg


@dataclass(frozen=True)
class Centralised(FedAvg):
    """Trains on the data of all clients in one place, for as many epochs: an upper bound."""

    pools_data: ClassVar[bool] = True
    trains_only_by_steps: ClassVar[bool] = False  # the data are not protected from the server
