"""Metrics of dense predictions: mean IoU, F-measure over thresholds, angles."""

from __future__ import annotations

import torch
from torch import Tensor

F_THRESHOLDS = tuple(step / 20 for step in range(1, 20))
"""0.05 to 0.95."""


def mean_iou(confusion: Tensor) -> float:
    """The mean intersection over union of all classes; a class that never occurs counts as 0.

    Args:
        confusion: The confusion matrix; rows are true classes, columns predicted ones.

    Returns:
        The mean IoU.
    """
    hits = confusion.diagonal().double()
    union = (confusion.sum(0) + confusion.sum(1)).double() - hits
    return float((hits / union.clamp(min=1e-8)).mean())


def best_f_measure(counts: Tensor, beta_squared: float) -> float:
    """The largest (1 + β²) P R / (β² P + R) over thresholds.

    Args:
        counts: Rows are true positives, predicted positives and actual positives, by threshold.
        beta_squared: β², the weight of recall.

    Returns:
        The F-measure at the best threshold.
    """
    hits, found, there = counts.double()
    precision, recall = hits / found.clamp(min=1), hits / there.clamp(min=1)
    both = (beta_squared * precision + recall).clamp(min=1e-12)
    return float(((1 + beta_squared) * precision * recall / both).max())


def angles(one: Tensor, other: Tensor) -> Tensor:
    """The angles in degrees between unit vectors along dimension 1, exact also for small angles.

    Args:
        one: Unit vectors.
        other: Unit vectors of the same shape.

    Returns:
        The angles, without dimension 1.
    """
    apart, together = (one - other).norm(dim=1), (one + other).norm(dim=1)
    return torch.rad2deg(2 * torch.atan2(apart, together))
