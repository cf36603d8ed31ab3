"""Optimisers of a server: the mean change of the clients is its gradient.

Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan: Adaptive Federated Optimization,
ICLR 2021, Algorithm 2. Hsu, Qi and Brown: Measuring the Effects of Non-Identical Data Distribution
for Federated Visual Classification, arXiv 1909.06335, 2019 (momentum).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from consort.core.bounds import PositiveFloat, Probability
from consort.core.params import BUFFERS, Params

Memory = dict[str, Params]
"""What an optimiser remembers: the paper's m and v."""

Rule: TypeAlias = Literal["momentum", "adagrad", "yogi", "adam"]
"""How the server steps."""


@dataclass(frozen=True)
class ServerOptimizer:
    """The server's step from its model along the mean change of the clients' models.

    Examples:
        >>> import torch
        >>> from consort import Params, ServerOptimizer
        >>> optimizer = ServerOptimizer("momentum", beta1=0.5)
        >>> x, memory = Params({"w": torch.zeros(1)}), {}
        >>> for _ in range(3):
        ...     x, memory = optimizer.step(x, x + 1.0, memory)
        ...     print(x["w"].item())
        1.0
        2.5
        4.25
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    rule: Rule = "momentum"
    """How a step is made: FedAvgM, FedAdagrad, FedYogi or FedAdam."""
    lr: PositiveFloat = 1.0
    """The server's learning rate, the paper's eta."""
    beta1: Probability = 0.9
    """The share of m that is kept."""
    beta2: Probability = 0.99
    """The share of v that is kept, with `yogi` and `adam`."""
    tau: PositiveFloat = 1e-3
    """The degree of adaptivity: added to the root of v, which begins with the square of it."""

    def step(self, x: Params, mean: Params, memory: Memory) -> tuple[Params, Memory]:
        """Takes one step; running statistics of BatchNorm become those of the mean.

        Args:
            x: The model that clients started from.
            mean: The mean of their models.
            memory: What the last step returned; empty before the first one.

        Returns:
            The new model, and what to remember.
        """
        start = x.without(BUFFERS)
        delta = mean.without(BUFFERS) - start
        m = memory.get("m", start.zeros())
        if self.rule == "momentum":
            m = self.beta1 * m + delta
            return mean | (start + self.lr * m), {"m": m}
        m = self.beta1 * m + (1 - self.beta1) * delta
        v = self._second(memory.get("v", start.zeros() + self.tau**2), delta * delta)
        return mean | (start + self.lr * (m / (v.sqrt() + self.tau))), {"m": m, "v": v}

    def _second(self, v: Params, square: Params) -> Params:
        if self.rule == "adagrad":
            return v + square
        if self.rule == "yogi":
            return v - (1 - self.beta2) * (square * (v - square).sign())
        return self.beta2 * v + (1 - self.beta2) * square
