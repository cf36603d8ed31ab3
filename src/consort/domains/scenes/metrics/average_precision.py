"""COCO's average precision of things that were found, each with a score."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

THRESHOLDS = torch.from_numpy(np.linspace(0.5, 0.95, 10))
"""From which similarity on something counts as found."""
_RECALLS = torch.from_numpy(np.linspace(0, 1, 101))


class Detections:
    """All that was found of one class, and how much of it there was."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        """So many of an image count, those with the highest scores."""
        self.there = 0
        self.scores: list[Tensor] = []
        self.hits: list[Tensor] = []
        self.counted: list[Tensor] = []

    def add(self, scores: Tensor, similarity: Tensor, unknown: Tensor) -> None:
        """Takes one image in, with similarities of what was found (rows) and the truth (columns).

        Each takes the most similar truth that is still free, the highest score first. One that
        is wrong does not count where `unknown`, the share of it that nobody knows, is enough.
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
    """By row and threshold, whether a truth was free for it; rows choose in their order."""
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
    """The mean over thresholds and over classes that occurred; nothing, if none did."""
    values = [part.average_precision() for part in classes if part.there]
    if not values:
        return {}
    means = torch.stack(values).mean(0)
    return {"ap": float(means.mean()), "ap50": float(means[0]), "ap75": float(means[5])}
