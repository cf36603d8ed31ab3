"""Federated averaging with Yogi on the server (FedYogi).

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan: Adaptive Federated Optimization,
ICLR 2021, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.aggregation.server_optimizer import Rule
from consort.algorithms.fedadam import FedAdam


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam, but v moves by the size of Delta² whatever the distance.

    v -= (1 - beta2) Delta² sign(v - Delta²).
    """

    trains_only_by_steps: ClassVar[bool] = True
    rule: ClassVar[Rule] = "yogi"
