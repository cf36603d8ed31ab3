"""Federated averaging with momentum on the server (FedAvgM).

Hsu, Qi and Brown: Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification, arXiv 1909.06335, 2019, Section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.aggregation.server_optimizer import ServerOptimizer
from consort.algorithms._server_optimizer import FedOpt
from consort.core.bounds import PositiveFloat, Probability


@dataclass(frozen=True)
class FedAvgM(FedOpt):
    """FedAvg whose server keeps a part of its last step: m = beta m + Delta, x += eta m."""

    trains_only_by_steps: ClassVar[bool] = True

    momentum: Probability = 0.9
    """The part that is kept, the paper's beta: 0 is FedAvg."""
    server_lr: PositiveFloat = 1.0
    """The server's learning rate."""

    @property
    def optimizer(self) -> ServerOptimizer:
        """SGD with momentum."""
        return ServerOptimizer("momentum", self.server_lr, self.momentum)
