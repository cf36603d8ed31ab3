"""One label per example out of a fixed set of classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.tasks.task import Meter


class ClassificationMeter:
    """Accuracy, balanced accuracy and loss from a confusion matrix."""

    def __init__(self, classes: int) -> None:
        self.confusion = torch.zeros(classes, classes, dtype=torch.int64)
        self.loss = 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch of logits and labels in."""
        classes = len(self.confusion)
        cells = target * classes + output.argmax(1)
        self.confusion += torch.bincount(cells, minlength=classes**2).view(classes, classes)
        self.loss += F.cross_entropy(output, target, reduction="sum").item()

    def compute(self) -> dict[str, float]:
        """Recall is averaged over the classes that occur, so one-class clients have a value."""
        seen = self.confusion.sum(1)
        hits = self.confusion.diagonal()
        total = int(seen.sum())
        recalls = hits[seen > 0] / seen[seen > 0]
        return {
            "accuracy": int(hits.sum()) / total,
            "balanced_accuracy": recalls.mean().item(),
            "loss": self.loss / total,
        }


@dataclass(frozen=True)
class Classification:
    """Cross entropy over `classes` labels 0, 1, …; reported by accuracy."""

    classes: int
    metric: str = "accuracy"
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classification needs at least two classes, found {self.classes}")

    def head(self, features: int) -> nn.Module:
        """A linear layer to one logit per class."""
        return nn.Linear(features, self.classes)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean cross entropy."""
        return F.cross_entropy(output, target)

    def meter(self) -> Meter:
        """An empty confusion matrix."""
        return ClassificationMeter(self.classes)
