"""Telling a number."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from consort import Meter


class ErrorMeter:
    """The mean distance from the truth."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch in."""
        self.total += (output - target).abs().sum().item()
        self.count += len(target)

    def compute(self) -> dict[str, float]:
        """The mean over everything taken in so far."""
        return {"error": self.total / self.count}


@dataclass(frozen=True)
class Frequency:
    """How often a wave swings: smooth L1 loss; reported by the mean absolute error."""

    metric: str = "error"
    higher_is_better: bool = False

    def head(self, features: int) -> nn.Module:
        """One number per example."""
        return nn.Sequential(nn.Linear(features, 1), nn.Flatten(0))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean over the batch."""
        return F.smooth_l1_loss(output, target)

    def meter(self) -> Meter:
        """An empty meter."""
        return ErrorMeter()
