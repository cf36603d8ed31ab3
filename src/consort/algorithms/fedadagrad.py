"""Federated averaging with Adagrad on the server (FedAdagrad).

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan: Adaptive Federated Optimization,
ICLR 2021, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.aggregation.server_optimizer import ServerOptimizer
from consort.algorithms._server_optimizer import FedOpt
from consort.core.bounds import PositiveFloat, Probability


@dataclass(frozen=True)
class FedAdagrad(FedOpt):
    """FedAvg whose server steps with Adagrad.

    m = beta1 m + (1 - beta1) Delta, v += Delta², x += eta m / (sqrt(v) + tau).
    """

    trains_only_by_steps: ClassVar[bool] = True

    server_lr: PositiveFloat = 0.01
    """The server's learning rate, the paper's eta."""
    beta1: Probability = 0.0
    """The share of m that is kept."""
    tau: PositiveFloat = 1e-3
    """The degree of adaptivity: the smaller, the more alike are the steps of all parameters."""

    @property
    def optimizer(self) -> ServerOptimizer:
        """Adagrad."""
        return ServerOptimizer("adagrad", self.server_lr, self.beta1, tau=self.tau)
