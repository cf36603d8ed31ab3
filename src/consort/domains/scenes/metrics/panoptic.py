"""How well segments of images were found: overlaps of masks, and the panoptic quality.

Every pixel has a code, `class * NUMBERS + number`, which is that of the segment it belongs to; the
code `UNKNOWN` means that nobody knows, or that there was no answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NUMBERS = 1000
UNKNOWN = 255 * NUMBERS


@dataclass(frozen=True)
class Overlaps:
    """The codes found and the true ones in an image, sorted, and how many pixels they share."""

    found: Tensor
    true: Tensor
    pixels: Tensor
    """By code found and true code."""

    @property
    def unknown(self) -> Tensor:
        """By code found, the share of its pixels that nobody knows."""
        return self.pixels[:, self.true == UNKNOWN].sum(1).double() / self.pixels.sum(1)

    @property
    def iou(self) -> Tensor:
        """Shared pixels by those of either, whether or not these are known."""
        either = self.pixels.sum(1)[:, None] + self.pixels.sum(0) - self.pixels
        return self.pixels.double() / either


def overlaps(found: Tensor, true: Tensor) -> Overlaps:
    """Compares two maps of codes."""
    ours, our_place = torch.unique(found, return_inverse=True)
    theirs, their_place = torch.unique(true, return_inverse=True)
    cells = (our_place * len(theirs) + their_place).flatten()
    pixels = cells.bincount(minlength=len(ours) * len(theirs)).view(len(ours), len(theirs))
    return Overlaps(ours, theirs, pixels)


def panoptic_counts(found: Tensor, true: Tensor, classes: int) -> Tensor:
    """By class: the summed IoU of hits, their number, false alarms, misses.

    A hit is a segment of the right class with an IoU above one half. Pixels that nobody knows
    belong to no segment; one that was found mostly there is no false alarm.
    """
    pairs = overlaps(found, true)
    rows, columns = pairs.found != UNKNOWN, pairs.true != UNKNOWN
    shared = pairs.pixels[rows][:, columns]
    known = pairs.pixels[:, columns].sum(1)[rows]
    iou = shared.double() / (known[:, None] + pairs.pixels.sum(0)[columns] - shared)
    ours, theirs = pairs.found[rows] // NUMBERS, pairs.true[columns] // NUMBERS
    hits = (ours[:, None] == theirs) & (iou > 0.5)
    wrong = ~hits.any(1) & (pairs.unknown[rows] <= 0.5)

    def by_class(kinds: Tensor, values: Tensor) -> Tensor:
        return torch.zeros(classes, dtype=torch.float64).index_add(0, kinds, values.double())

    right = by_class(theirs, (iou * hits).sum(0)), by_class(theirs, hits.sum(0))
    return torch.stack([*right, by_class(ours, wrong), by_class(theirs, ~hits.any(0))])


def panoptic_quality(counts: Tensor) -> dict[str, float]:
    """PQ = SQ x RQ of every class, and their means over classes that occurred or were found."""
    iou, hits, wrong, missed = counts[:, counts[1:].sum(0) > 0]
    if not len(hits):
        return {}
    recognised = hits / (hits + wrong / 2 + missed / 2)
    segmented = iou / hits.clamp(min=1)
    means = {"pq": segmented * recognised, "sq": segmented, "rq": recognised}
    return {name: float(values.mean()) for name, values in means.items()}
