"""One label per example out of a fixed set of classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.errors import UsageError
from consort.tasks.task import Meter


class ClassificationMeter:
    """Accumulates accuracy, balanced accuracy and loss in a confusion matrix.

    Args:
        classes: The number of classes.
    """

    def __init__(self, classes: int) -> None:
        self.confusion = torch.zeros(classes, classes, dtype=torch.int64)
        self.loss = 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch.

        Args:
            output: Logits, examples x classes.
            target: The label of each example.
        """
        classes = len(self.confusion)
        cells = target * classes + output.argmax(1)
        self.confusion += torch.bincount(cells, minlength=classes**2).view(classes, classes)
        self.loss += F.cross_entropy(output, target, reduction="sum").item()

    def compute(self) -> dict[str, float]:
        """Accuracy, balanced accuracy and mean loss of all batches so far.

        Balanced accuracy averages the recall of the classes that occur, so that it is also defined
        for clients with few classes.
        """
        seen = self.confusion.sum(1)
        hits = self.confusion.diagonal()
        total = int(seen.sum())
        recalls = hits[seen > 0] / seen[seen > 0]
        return {
            "accuracy": int(hits.sum()) / total,
            "balanced_accuracy": recalls.mean().item(),
            "loss": self.loss / total,
        }


def check_labels(targets: Tensor, classes: int) -> None:
    """Checks that labels are whole numbers from 0.

    Args:
        targets: The labels.
        classes: The number of classes.

    Raises:
        UsageError: If a label is not one of the classes.
    """
    if targets.is_floating_point():
        kind = str(targets.dtype).removeprefix("torch.")
        raise UsageError(f"labels are {kind}, but classes are whole numbers: convert them to int64")
    if not targets.numel():
        return
    least, most = int(targets.min()), int(targets.max())
    if least < 0 or most >= classes:
        shift = "subtract 1 from them" if (least, most) == (1, classes) else _way_out(least, most)
        raise UsageError(
            f"labels are {least} to {most}, but those of {classes} classes are 0 to {classes - 1}: "
            f"{shift}"
        )


def _way_out(least: int, most: int) -> str:
    return "number the classes from 0" if least < 0 else f"set the number of classes to {most + 1}"


@dataclass(frozen=True)
class Classification:
    """Classification with cross entropy; reported by accuracy.

    Raises:
        ValueError: If there are fewer than two classes.

    Examples:
        >>> import torch
        >>> from consort import Classification
        >>> task = Classification(3)
        >>> output = task.head(8)(torch.zeros(5, 8))
        >>> output.shape
        torch.Size([5, 3])
        >>> task.loss(torch.zeros(1, 3), torch.tensor([2]))
        tensor(1.0986)
    """

    classes: int
    """The number of classes; labels are 0, 1, …"""
    metric: str = "accuracy"
    """The metric that represents the task."""
    higher_is_better: bool = True
    """Whether a larger value of `metric` is better."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classification needs at least two classes, found {self.classes}")

    def head(self, features: int) -> nn.Module:
        """Builds a linear layer with one logit per class.

        Args:
            features: The number of features that it receives.
        """
        return nn.Linear(features, self.classes)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean cross entropy of a batch.

        Args:
            output: Logits, examples x classes.
            target: The label of each example.
        """
        return F.cross_entropy(output, target)

    def check(self, targets: Tensor) -> None:
        """Checks labels before anything is trained.

        Args:
            targets: The labels of a client.

        Raises:
            UsageError: If a label is not one of the classes.
        """
        check_labels(targets, self.classes)

    def meter(self) -> Meter:
        """A new meter with an empty confusion matrix."""
        return ClassificationMeter(self.classes)
