"""Panoptic and instance segmentation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.domains.scenes.metrics.average_precision import Detections, mean_average_precision
from consort.domains.scenes.metrics.panoptic import (
    NUMBERS,
    UNKNOWN,
    overlaps,
    panoptic_counts,
    panoptic_quality,
)
from consort.domains.scenes.tasks.dense import IGNORED, DenseTask, mean_over, mean_over_hardest
from consort.domains.scenes.tasks.things import are_things, centre_targets, found_things
from consort.tasks.task import Meter

_HARDEST, _HEAT_WEIGHT = 0.15, 200.0  # as published
_OFFSET_WEIGHT = 6.4  # divided by the longer side: the published 0.01 per pixel, of 640


@dataclass(frozen=True)
class Panoptic(DenseTask):
    """Panoptic segmentation as in Panoptic-DeepLab; reported by panoptic quality.

    Targets are maps of codes, `class * 1000 + number`. The first `stuff` classes are uncountable
    and have the number 0; things of the other classes are numbered from 1, in any order. Pixels
    with the code 255000 are ignored. Outputs are the logits of all classes, a heat map of the
    centres of things, and the offset (down, right) from every pixel to the centre of its thing.

    Raises:
        ValueError: If there are too few or too many classes.
    """

    classes: int
    """The number of classes."""
    stuff: int
    """The number of uncountable classes."""
    sigma: float = 8.0
    """The standard deviation of the heat map of centres, in pixels."""
    metric: str = "pq"
    higher_is_better: bool = True

    ignored = UNKNOWN

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= IGNORED or not 0 <= self.stuff < self.classes:
            raise ValueError(
                f"it needs 2 to {IGNORED} classes, at least one of them things, found "
                f"{self.classes} classes of which {self.stuff} are stuff"
            )

    @property
    def outputs(self) -> int:
        """Logits, one heat map of centres and two offsets."""
        return self.classes + 3

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross entropy of the hardest pixels, squared error of centres, absolute error of offsets.

        Few pixels are things, and offsets are small in small images: without hard pixel mining, and
        without weighting offsets by the image's size, models of small images learn neither.

        Args:
            output: Images x outputs x height x width.
            target: Codes, images x height x width.

        Returns:
            A scalar.
        """
        logits, heat, offsets = torch.split(output, [self.classes, 1, 2], 1)
        known, kind = target < UNKNOWN, target.long() // NUMBERS
        centre, offset = centre_targets(target, self.classes, self.sigma)
        kinds = F.cross_entropy(logits, kind, ignore_index=IGNORED, reduction="none")
        squares, errors = (heat[:, 0] - centre).square(), (offsets - offset).abs().sum(1)
        return (
            mean_over_hardest(kinds, known, _HARDEST)
            + _HEAT_WEIGHT * mean_over(squares, known)
            + _OFFSET_WEIGHT / max(target.shape[-2:]) * mean_over(errors, are_things(target))
        )

    def found(self, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The segments predicted by the `output` for one image: see `found_things`."""
        logits, heat, offsets = torch.split(output, [self.classes, 1, 2])
        return found_things(heat[0], offsets, logits, self.stuff)

    def meter(self) -> Meter:
        """A new, empty meter."""
        return PanopticMeter(self)


class PanopticMeter:
    """Panoptic, segmentation and recognition quality, and the loss.

    Args:
        task: The task that is evaluated.
    """

    def __init__(self, task: Panoptic) -> None:
        self.task = task
        self.counts = torch.zeros(4, task.classes, dtype=torch.float64)
        self.images, self.loss = 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of maps (`output`) and codes (`target`)."""
        for row in range(len(target)):
            truth = target[row].long()
            if bool((truth < UNKNOWN).any()):
                self.loss += self.task.loss(output[row : row + 1], target[row : row + 1]).item()
                self.images += 1
                self.take(output[row], truth)

    def take(self, output: Tensor, truth: Tensor) -> None:
        """Adds one image.

        Args:
            output: The outputs for the image.
            truth: The true codes.
        """
        self.counts += panoptic_counts(self.task.found(output)[0], truth, self.task.classes)

    def scores(self) -> dict[str, float]:
        """The metrics without the loss."""
        return panoptic_quality(self.counts)

    def compute(self) -> dict[str, float]:
        """The metrics; empty if there were no segments."""
        scores = self.scores() if self.images else {}
        return scores and {**scores, "loss": self.loss / self.images}


@dataclass(frozen=True)
class Instances(Panoptic):
    """Instance segmentation; reported by COCO's average precision.

    It has the targets and outputs of `Panoptic`. Class 0 is everything that is not a thing, so
    `classes` is one more than the number of classes of things.
    """

    stuff: int = 1
    metric: str = "ap"

    def meter(self) -> Meter:
        """A new, empty meter."""
        return InstancesMeter(self)


class InstancesMeter(PanopticMeter):
    """AP of masks over IoU thresholds from .50 to .95, AP50 and AP75, and the loss.

    Args:
        task: The task that is evaluated.
    """

    def __init__(self, task: Instances) -> None:
        super().__init__(task)
        self.things = [Detections() for _ in range(task.stuff, task.classes)]

    def take(self, output: Tensor, truth: Tensor) -> None:
        """Adds one image.

        Args:
            output: The outputs for the image.
            truth: The true codes.
        """
        codes, found, scores = self.task.found(output)
        pairs = overlaps(codes, truth)
        rows = torch.searchsorted(pairs.found, found)
        iou, unknown = pairs.iou[rows], pairs.unknown[rows]
        for kind, things in enumerate(self.things, start=self.task.stuff):
            ours, theirs = found // NUMBERS == kind, pairs.true // NUMBERS == kind
            things.add(scores[ours], iou[ours][:, theirs], unknown[ours])

    def scores(self) -> dict[str, float]:
        """The metrics without the loss; empty if there were no things."""
        return mean_average_precision(self.things)
