"""Overlaps of segments, and panoptic quality.

Every pixel has the code of its segment, `class * NUMBERS + number`. The code `UNKNOWN` means that
a pixel is unlabelled or has no prediction.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NUMBERS = 1000
"""Codes per class."""
UNKNOWN = 255 * NUMBERS
"""The code of unlabelled pixels."""


@dataclass(frozen=True)
class Overlaps:
    """The predicted and the true codes in an image, sorted, and how many pixels they share."""

    found: Tensor
    true: Tensor
    pixels: Tensor
    """Shared pixels, predicted codes x true codes."""

    @property
    def unknown(self) -> Tensor:
        """The share of each predicted segment that is unlabelled."""
        return self.pixels[:, self.true == UNKNOWN].sum(1).double() / self.pixels.sum(1)

    @property
    def iou(self) -> Tensor:
        """Intersection over union, including unlabelled pixels."""
        either = self.pixels.sum(1)[:, None] + self.pixels.sum(0) - self.pixels
        return self.pixels.double() / either


def overlaps(found: Tensor, true: Tensor) -> Overlaps:
    """Compares two maps of codes.

    Args:
        found: The predicted code of every pixel.
        true: The true code of every pixel.

    Returns:
        The overlap of all pairs of segments.
    """
    ours, our_place = torch.unique(found, return_inverse=True)
    theirs, their_place = torch.unique(true, return_inverse=True)
    cells = (our_place * len(theirs) + their_place).flatten()
    pixels = cells.bincount(minlength=len(ours) * len(theirs)).view(len(ours), len(theirs))
    return Overlaps(ours, theirs, pixels)


def panoptic_counts(found: Tensor, true: Tensor, classes: int) -> Tensor:
    """Counts matched segments of one image.

    A predicted segment is a true positive if its class is right and its IoU above one half.
    Unlabelled pixels are left out; a prediction that is mostly unlabelled is no false positive.

    Args:
        found: The predicted code of every pixel.
        true: The true code of every pixel.
        classes: The number of classes.

    Returns:
        By class (columns): summed IoU of true positives, true positives, false positives, misses.
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
    """PQ = SQ x RQ, averaged over the classes that occur or were predicted.

    Args:
        counts: The sum of `panoptic_counts` over images.

    Returns:
        `pq`, `sq` and `rq`; empty if there are no segments.
    """
    iou, hits, wrong, missed = counts[:, counts[1:].sum(0) > 0]
    if not len(hits):
        return {}
    recognised = hits / (hits + wrong / 2 + missed / 2)
    segmented = iou / hits.clamp(min=1)
    means = {"pq": segmented * recognised, "sq": segmented, "rq": recognised}
    return {name: float(values.mean()) for name, values in means.items()}
