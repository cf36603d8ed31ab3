"""What every pixel is, and which thing it belongs to: panoptic and instance segmentation."""

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
from consort.domains.scenes.tasks.things import are_things, found_things, learnt
from consort.tasks.task import Meter

_HARDEST, _HEAT_WEIGHT = 0.15, 200.0  # as published
_WAY_WEIGHT = 6.4  # by the image's longer side: the published 0.01 a pixel, of 640


@dataclass(frozen=True)
class Panoptic(DenseTask):
    """The class of every pixel, and the thing it belongs to; reported by the panoptic quality.

    Targets are maps of codes, `class * 1000 + number`. The first `stuff` of the classes are not
    counted and have the number 0; things of the others are numbered from 1 on, in any order.
    Pixels with the code 255000 are ignored. Outputs are the logits of all classes, the map of
    middles of things, and the way (down, right) from every pixel to the middle of its thing.
    """

    classes: int
    stuff: int
    sigma: float = 8.0
    """How wide middles are, in pixels."""
    metric: str = "pq"
    higher_is_better: bool = True

    ignored = UNKNOWN

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= IGNORED or not 0 <= self.stuff < self.classes:
            raise ValueError(
                f"it needs 2 to {IGNORED} classes of which at least one is counted, found "
                f"{self.classes} classes with {self.stuff} that are not"
            )

    @property
    def outputs(self) -> int:
        """Logits, one middle and two ways."""
        return self.classes + 3

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross entropy of the hardest pixels, squared error of middles, absolute error of ways.

        Few pixels are things, and ways are short in a small image: without hard pixels, and with
        ways in pixels, a model of small images learns neither.
        """
        logits, heat, ways = torch.split(output, [self.classes, 1, 2], 1)
        known, kind = target < UNKNOWN, target.long() // NUMBERS
        middle, way = learnt(target, self.classes, self.sigma)
        kinds = F.cross_entropy(logits, kind, ignore_index=IGNORED, reduction="none")
        squares, errors = (heat[:, 0] - middle).square(), (ways - way).abs().sum(1)
        return (
            mean_over_hardest(kinds, known, _HARDEST)
            + _HEAT_WEIGHT * mean_over(squares, known)
            + _WAY_WEIGHT / max(target.shape[-2:]) * mean_over(errors, are_things(target))
        )

    def found(self, output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the output for one image says: see `found_things`."""
        logits, heat, ways = torch.split(output, [self.classes, 1, 2])
        return found_things(heat[0], ways, logits, self.stuff)

    def meter(self) -> Meter:
        """Empty counts."""
        return PanopticMeter(self)


class PanopticMeter:
    """Panoptic, segmentation and recognition quality, and the loss."""

    def __init__(self, task: Panoptic) -> None:
        self.task = task
        self.counts = torch.zeros(4, task.classes, dtype=torch.float64)
        self.images, self.loss = 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch in."""
        for row in range(len(target)):
            truth = target[row].long()
            if bool((truth < UNKNOWN).any()):
                self.loss += self.task.loss(output[row : row + 1], target[row : row + 1]).item()
                self.images += 1
                self.take(output[row], truth)

    def take(self, output: Tensor, truth: Tensor) -> None:
        """Takes one image in."""
        self.counts += panoptic_counts(self.task.found(output)[0], truth, self.task.classes)

    def scores(self) -> dict[str, float]:
        """What is reported besides the loss."""
        return panoptic_quality(self.counts)

    def compute(self) -> dict[str, float]:
        """Nothing, if there was nothing to be found."""
        scores = self.scores() if self.images else {}
        return scores and {**scores, "loss": self.loss / self.images}


@dataclass(frozen=True)
class Instances(Panoptic):
    """Things with their masks, reported by COCO's average precision.

    It has the targets and outputs of `Panoptic`; class 0 is what is no thing, so that `classes` is
    one more than there are classes of things.
    """

    stuff: int = 1
    metric: str = "ap"

    def meter(self) -> Meter:
        """No things yet."""
        return InstancesMeter(self)


class InstancesMeter(PanopticMeter):
    """Average precision of masks over thresholds from .50 to .95, at .50 and at .75; the loss."""

    def __init__(self, task: Instances) -> None:
        super().__init__(task)
        self.things = [Detections() for _ in range(task.stuff, task.classes)]

    def take(self, output: Tensor, truth: Tensor) -> None:
        """Takes one image in."""
        codes, found, scores = self.task.found(output)
        pairs = overlaps(codes, truth)
        rows = torch.searchsorted(pairs.found, found)
        iou, unknown = pairs.iou[rows], pairs.unknown[rows]
        for kind, things in enumerate(self.things, start=self.task.stuff):
            ours, theirs = found // NUMBERS == kind, pairs.true // NUMBERS == kind
            things.add(scores[ours], iou[ours][:, theirs], unknown[ours])

    def scores(self) -> dict[str, float]:
        """Nothing, if there was no thing."""
        return mean_average_precision(self.things)
