"""Measures of maps: overlap of regions, the F-measure over thresholds, angles."""

from __future__ import annotations

import torch
from torch import Tensor

F_THRESHOLDS = tuple(step / 20 for step in range(1, 20))
"""0.05 to 0.95."""


def mean_iou(confusion: Tensor) -> float:
    """The mean over all classes of hits by hits, misses and false alarms together.

    Rows of the matrix are true classes, columns found ones; a class that never occurs counts as 0.
    """
    hits = confusion.diagonal().double()
    union = (confusion.sum(0) + confusion.sum(1)).double() - hits
    return float((hits / union.clamp(min=1e-8)).mean())


def best_f_measure(counts: Tensor, beta_squared: float) -> float:
    """The largest (1 + β²) P R / (β² P + R) over thresholds.

    Rows of `counts` are the hits, what was found and what there is; with a fourth row, the first
    are the hits among what was found and the fourth those among what there is.
    """
    hits, found, there = counts[:3].double()
    recalled = counts[3].double() if len(counts) > 3 else hits
    precision, recall = hits / found.clamp(min=1), recalled / there.clamp(min=1)
    both = (beta_squared * precision + recall).clamp(min=1e-12)
    return float(((1 + beta_squared) * precision * recall / both).max())


def angles(one: Tensor, other: Tensor) -> Tensor:
    """Degrees between unit vectors along dimension 1, exact for small angles as well."""
    apart, together = (one - other).norm(dim=1), (one + other).norm(dim=1)
    return torch.rad2deg(2 * torch.atan2(apart, together))
