"""Federated averaging with Adam on the server (FedAdam).

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan: Adaptive Federated Optimization,
ICLR 2021, Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.aggregation.server_optimizer import Rule, ServerOptimizer
from consort.algorithms._server_optimizer import FedOpt
from consort.core.bounds import PositiveFloat, Probability


@dataclass(frozen=True)
class FedAdam(FedOpt):
    """FedAvg whose server steps with Adam, without correction of the start.

    m = beta1 m + (1 - beta1) Delta, v = beta2 v + (1 - beta2) Delta²,
    x += eta m / (sqrt(v) + tau).
    """

    trains_only_by_steps: ClassVar[bool] = True
    rule: ClassVar[Rule] = "adam"

    server_lr: PositiveFloat = 0.01
    """The server's learning rate, the paper's eta."""
    beta1: Probability = 0.9
    """The share of m that is kept."""
    beta2: Probability = 0.99
    """The share of v that is kept."""
    tau: PositiveFloat = 1e-3
    """The degree of adaptivity: the smaller, the more alike are the steps of all parameters."""

    @property
    def optimizer(self) -> ServerOptimizer:
        """The rule, with the options of the algorithm."""
        return ServerOptimizer(self.rule, self.server_lr, self.beta1, self.beta2, self.tau)
