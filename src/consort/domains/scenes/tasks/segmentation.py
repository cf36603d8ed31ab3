"""Semantic segmentation, also of body parts, and saliency detection."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.domains.scenes.metrics.dense import F_THRESHOLDS, best_f_measure, mean_iou
from consort.domains.scenes.tasks.dense import IGNORED, DenseTask, mean_over
from consort.tasks.task import Meter


class SegmentationMeter:
    """Mean IoU, pixel accuracy and loss from a confusion matrix of all pixels.

    Args:
        classes: The number of classes.
    """

    def __init__(self, classes: int) -> None:
        self.confusion = torch.zeros(classes, classes, dtype=torch.int64)
        self.loss = 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of logits (`output`) and labels (`target`)."""
        classes = len(self.confusion)
        known, labels = target != IGNORED, target.long()
        cells = labels[known] * classes + output.argmax(1)[known]
        self.confusion += torch.bincount(cells, minlength=classes**2).view(classes, classes)
        loss = F.cross_entropy(output, labels, ignore_index=IGNORED, reduction="sum")
        self.loss += loss.item()

    def compute(self) -> dict[str, float]:
        """The metrics; empty if no pixel was labelled."""
        total = int(self.confusion.sum())
        if not total:
            return {}
        return {
            "miou": mean_iou(self.confusion),
            "pixel_accuracy": int(self.confusion.diagonal().sum()) / total,
            "loss": self.loss / total,
        }


@dataclass(frozen=True)
class Segmentation(DenseTask):
    """Semantic segmentation with cross entropy; reported by mean IoU.

    It serves body parts as well; there, images without any body are ignored as a whole.

    Raises:
        ValueError: If there are too few or too many classes.
    """

    classes: int
    """The number of classes; labels are 0, 1, …"""
    metric: str = "miou"
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        if not 2 <= self.classes <= IGNORED:
            raise ValueError(f"segmentation needs 2 to {IGNORED} classes, found {self.classes}")

    @property
    def outputs(self) -> int:
        """One logit per class."""
        return self.classes

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean cross entropy of the logits `output` over the labelled pixels of `target`."""
        losses = F.cross_entropy(output, target.long(), ignore_index=IGNORED, reduction="none")
        return mean_over(losses, target != IGNORED)

    def meter(self) -> Meter:
        """A new meter with an empty confusion matrix."""
        return SegmentationMeter(self.classes)


class SaliencyMeter:
    """The best F-measure over thresholds, the best mean IoU over thresholds, and the loss."""

    def __init__(self) -> None:
        self.counts = torch.zeros(3, len(F_THRESHOLDS), dtype=torch.int64)
        self.ious = torch.zeros(len(F_THRESHOLDS), dtype=torch.float64)
        self.images, self.pixels, self.loss = 0, 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of logits (`output`) and labels (`target`)."""
        known = target != IGNORED
        truth = (target == 1) & known
        chances = output.softmax(1)[:, 1]
        for place, threshold in enumerate(F_THRESHOLDS):
            found = (chances >= threshold) & known
            hits = (found & truth).flatten(1).sum(1)
            either = (found | truth).flatten(1).sum(1)
            counts = hits.sum(), found.sum(), truth.sum()
            self.counts[:, place] += torch.stack(counts)
            # An image without salient pixels, in which none was predicted, has IoU 1.
            self.ious[place] += torch.where(either > 0, hits / either.clamp(min=1), 1.0).sum()
        self.images += len(target)
        self.pixels += int(known.sum())
        loss = F.cross_entropy(output, target.long(), ignore_index=IGNORED, reduction="sum")
        self.loss += loss.item()

    def compute(self) -> dict[str, float]:
        """The metrics; empty if no pixel was labelled."""
        if not self.pixels:
            return {}
        return {
            "max_f": best_f_measure(self.counts, beta_squared=0.3),
            "miou": float(self.ious.max()) / self.images,
            "loss": self.loss / self.pixels,
        }


@dataclass(frozen=True)
class Saliency(DenseTask):
    """Saliency detection: salient (1) or not (0); reported by the maximal F-measure."""

    metric: str = "max_f"
    higher_is_better: bool = True

    @property
    def outputs(self) -> int:
        """Two logits."""
        return 2

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Cross entropy of `output` and `target`, each class weighted by the share of the other."""
        known = target != IGNORED
        share = mean_over((target == 1).to(output.dtype), known)
        losses = F.cross_entropy(output, target.long(), ignore_index=IGNORED, reduction="none")
        return mean_over(losses * torch.where(target == 1, 1 - share, share), known)

    def meter(self) -> Meter:
        """A new, empty meter."""
        return SaliencyMeter()
