"""Fingerprint verification: whether two images show the same finger, by embedding distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from consort.metrics.biometric import (
    Errors,
    area_under_curve,
    equal_error_rate,
    equal_error_threshold,
    errors_at,
    true_acceptance_rate,
)
from consort.tasks.task import Meter

IMPOSTORS = 10_000
"""The largest number of impostor pairs in an evaluation, as in AFFR's paper."""
_TINY = 1e-12
"""Added under the square root, whose gradient at 0 is infinite."""

Distances = NDArray[np.float64]


def distance(one: Tensor, other: Tensor) -> Tensor:
    """The Euclidean distance between the embeddings `one` and `other`, row by row."""
    return ((one - other).square().sum(-1) + _TINY).sqrt()


def contrastive_loss(distances: Tensor, same: Tensor, margin: float) -> Tensor:
    """The contrastive loss of each pair: d² for the same finger, max(0, margin - d)² for two.

    Args:
        distances: The distance d of each pair.
        same: Whether the pair shows one finger.
        margin: The distance from which on pairs of two fingers have no loss.

    Returns:
        The loss of each pair.
    """
    return torch.where(same, distances.square(), (margin - distances).clamp(min=0).square())


class VerificationMeter:
    """Collects embeddings and compares genuine pairs with impostor pairs formed of their halves.

    Args:
        margin: The largest distance that is accepted.
    """

    def __init__(self, margin: float) -> None:
        self.margin = margin
        self.embeddings: list[Tensor] = []
        self.fingers: list[Tensor] = []
        self.threshold: float | None = None

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch.

        Args:
            output: Embeddings, pairs x 2 x width.
            target: The finger of each pair.
        """
        self.embeddings.append(output.detach().double())
        self.fingers.append(target)

    def calibrate(self, validation: Meter) -> None:
        """Adopts the distance threshold at which FAR and FRR were equal in validation.

        Args:
            validation: The meter that has seen the validation data.
        """
        if isinstance(validation, VerificationMeter) and validation.embeddings:
            genuine, impostor = validation.distances()
            if len(impostor):
                self.threshold = -equal_error_threshold(-genuine, -impostor)

    def distances(self) -> tuple[Distances, Distances]:
        """The distances of all genuine pairs, and of the impostor pairs that are evaluated."""
        left, right = torch.cat(self.embeddings).unbind(1)
        first, second = impostor_pairs(torch.cat(self.fingers))
        return distance(left, right).numpy(), distance(left[first], right[second]).numpy()

    def compute(self) -> dict[str, float]:
        """The loss, decisions at the margin and at the validated threshold, EER, AUC and TAR@FAR.

        Without two different fingers there are no impostor pairs, and only loss and accuracy.
        """
        genuine, impostor = self.distances()
        missed = np.square(np.maximum(self.margin - impostor, 0))
        found = {
            "loss": float(np.mean([part.mean() for part in (genuine**2, missed) if len(part)]))
        }
        if not len(impostor):
            return found | {"accuracy": float(np.mean(genuine <= self.margin))}
        scores = -genuine, -impostor
        found |= decisions(errors_at(*scores, -self.margin))
        if self.threshold is not None:
            at_threshold = decisions(errors_at(*scores, -self.threshold))
            found |= {f"{name}_validated": value for name, value in at_threshold.items()}
        return found | {
            "eer": equal_error_rate(*scores),
            "auc": area_under_curve(*scores),
            "tar_at_1pct": true_acceptance_rate(*scores, 0.01),
            "tar_at_1permille": true_acceptance_rate(*scores, 0.001),
        }


def decisions(errors: Errors) -> dict[str, float]:
    """Accuracy, precision, recall and F1 of `errors`; accepted pairs are the positives."""
    wrong = errors.rejected + errors.accepted
    precision, recall = errors.precision, errors.recall
    return {
        "accuracy": 1 - wrong / (errors.genuine + errors.forged),
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / max(precision + recall, _TINY),
    }


def impostor_pairs(fingers: Tensor, most: int = IMPOSTORS) -> tuple[Tensor, Tensor]:
    """Pairs of rows that show different fingers: all of them, or about `most`.

    Row i is paired with row i + s for as many evenly spaced shifts s as are needed.

    Args:
        fingers: The finger of each row.
        most: The largest number of pairs.

    Returns:
        The first and the second row of each pair.
    """
    count = len(fingers)
    needed = min(-(-most // max(count, 1)), count - 1)
    shifts = torch.linspace(1, max(count - 1, 1), needed).round().long()
    first = torch.arange(count).repeat(needed)
    second = (first + shifts.repeat_interleave(count)) % max(count, 1)
    different = fingers[first] != fingers[second]
    return first[different][:most], second[different][:most]


class Normalised(nn.Module):
    """Scales embeddings to length 1."""

    def forward(self, embeddings: Tensor) -> Tensor:
        """The `embeddings` divided by their lengths."""
        return F.normalize(embeddings, dim=-1)


@dataclass(frozen=True)
class Verification:
    """Verification of pairs of fingerprints with a contrastive loss.

    An example is a pair of images of one finger, its target the number of the finger. Its features
    are those of the first image followed by those of the second, as the encoder `siamese` returns
    them. Impostor pairs are formed of the halves of two examples; in training there are as many as
    genuine pairs.
    """

    margin: float = 1.0
    """The margin of the loss, and the largest distance that is accepted."""
    embedding: int = 128
    """The width of the embeddings."""
    normalised: bool = False
    """Whether embeddings are scaled to length 1."""
    compares_examples: ClassVar[bool] = True
    """The loss is not a sum over single examples."""
    metric: str = "eer"
    higher_is_better: bool = False

    def head(self, features: int) -> nn.Module:
        """A linear layer that maps the `features` of each image of a pair to its embedding."""
        layers = nn.Unflatten(1, (2, features // 2)), nn.Linear(features // 2, self.embedding)
        return nn.Sequential(*layers, *([Normalised()] if self.normalised else []))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean contrastive loss over genuine pairs and impostor pairs, half a batch apart.

        Args:
            output: Embeddings, pairs x 2 x width.
            target: The finger of each pair.

        Returns:
            A scalar.
        """
        left, right = output.unbind(1)
        shift = len(output) // 2
        same = torch.ones_like(target, dtype=torch.bool)
        genuine = contrastive_loss(distance(left, right), same, self.margin)
        impostor = contrastive_loss(distance(left, right.roll(shift, 0)), ~same, self.margin)
        other = (target != target.roll(shift)).to(output.dtype)
        return (genuine.sum() + (impostor * other).sum()) / (len(output) + other.sum())

    def meter(self) -> Meter:
        """A new, empty meter."""
        return VerificationMeter(self.margin)
