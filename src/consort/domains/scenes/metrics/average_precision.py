"""COCO's average precision of scored detections."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

THRESHOLDS = torch.from_numpy(np.linspace(0.5, 0.95, 10))
"""The similarities from which on a detection matches a ground truth."""
_RECALLS = torch.from_numpy(np.linspace(0, 1, 101))
"""The recalls at which precision is averaged."""


class Detections:
    """Accumulates the detections and ground truths of one class.

    Args:
        most: The largest number of detections per image, those with the highest scores.
    """

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.there = 0
        self.scores: list[Tensor] = []
        self.hits: list[Tensor] = []
        self.counted: list[Tensor] = []

    def add(self, scores: Tensor, similarity: Tensor, unknown: Tensor) -> None:
        """Adds one image.

        In the order of their scores, detections match the most similar ground truth that is free. A
        detection without a match counts as false unless enough of it is unknown.

        Args:
            scores: The score of each detection.
            similarity: Detections x ground truths.
            unknown: The share of each detection that lies in unlabelled regions.
        """
        order = scores.sort(descending=True, stable=True).indices[: self.most]
        hits = _matched(similarity[order].double())
        self.there += similarity.shape[1]
        self.scores.append(scores[order])
        self.hits.append(hits)
        self.counted.append(hits | (unknown[order].double()[:, None] < THRESHOLDS))

    def average_precision(self) -> Tensor:
        """For every threshold the mean precision over 101 recalls."""
        order = torch.cat(self.scores).sort(descending=True, stable=True).indices
        hits, counted = torch.cat(self.hits)[order], torch.cat(self.counted)[order]
        found = hits.cumsum(0).double()
        precision = found / counted.cumsum(0).clamp(min=1)
        best = precision.flip(0).cummax(0).values.flip(0) if len(order) else precision
        recall = (found / max(self.there, 1)).T.contiguous()
        place = torch.searchsorted(recall, _RECALLS.expand(len(THRESHOLDS), -1).contiguous())
        nothing = torch.zeros(1, len(THRESHOLDS), dtype=torch.float64)
        return torch.cat([best, nothing]).T.gather(1, place).mean(1)


def _matched(similarity: Tensor) -> Tensor:
    """For each row and threshold, whether a free ground truth was found; rows choose in order."""
    rows, columns = similarity.shape
    hits = torch.zeros(rows, len(THRESHOLDS), dtype=torch.bool)
    free = torch.ones(len(THRESHOLDS), columns, dtype=torch.bool)
    enough = similarity[:, None] >= THRESHOLDS[:, None]
    for row in enough.flatten(1).any(1).nonzero()[:, 0].tolist():
        fits = torch.where(free & enough[row], similarity[row], -1.0)
        value, place = fits.max(1)
        hits[row] = value >= 0
        free.scatter_(1, place[:, None], free.gather(1, place[:, None]) & ~hits[row][:, None])
    return hits


def mean_average_precision(classes: Sequence[Detections]) -> dict[str, float]:
    """AP averaged over thresholds and classes, AP50 and AP75.

    Args:
        classes: The detections of each class.

    Returns:
        The metrics over the classes that occur; empty if none does.
    """
    values = [part.average_precision() for part in classes if part.there]
    if not values:
        return {}
    means = torch.stack(values).mean(0)
    return {"ap": float(means.mean()), "ap50": float(means[0]), "ap75": float(means[5])}
