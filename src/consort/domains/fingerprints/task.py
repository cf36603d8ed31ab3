"""Whether two pictures show the same finger: a distance between embeddings."""

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
"""At most so many impostor pairs are tested, as in AFFR's paper."""
_TINY = 1e-12
"""Under the root, where it has no gradient otherwise."""

Distances = NDArray[np.float64]


def distance(one: Tensor, other: Tensor) -> Tensor:
    """How far two embeddings are apart, row by row."""
    return ((one - other).square().sum(-1) + _TINY).sqrt()


def contrastive_loss(distances: Tensor, same: Tensor, margin: float) -> Tensor:
    """Each pair's loss: d² for the same finger, max(0, margin - d)² for two."""
    return torch.where(same, distances.square(), (margin - distances).clamp(min=0).square())


class VerificationMeter:
    """Distances of genuine pairs, as they come, and of impostor pairs made of their halves."""

    def __init__(self, margin: float) -> None:
        self.margin = margin
        self.embeddings: list[Tensor] = []
        self.fingers: list[Tensor] = []
        self.threshold: float | None = None

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes the embeddings of a batch of pairs in, and the finger of each pair."""
        self.embeddings.append(output.detach().double())
        self.fingers.append(target)

    def calibrate(self, validation: Meter) -> None:
        """Takes over the distance at which the two error rates were equal in validation."""
        if isinstance(validation, VerificationMeter) and validation.embeddings:
            genuine, impostor = validation.distances()
            if len(impostor):
                self.threshold = -equal_error_threshold(-genuine, -impostor)

    def distances(self) -> tuple[Distances, Distances]:
        """Of all genuine pairs, and of the impostor pairs that are tested."""
        left, right = torch.cat(self.embeddings).unbind(1)
        first, second = impostor_pairs(torch.cat(self.fingers))
        return distance(left, right).numpy(), distance(left[first], right[second]).numpy()

    def compute(self) -> dict[str, float]:
        """Decisions at the margin and, if there is one, at the validated threshold; EER and AUC."""
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
    """Accuracy, precision, recall and F1, where accepted pairs are called positive."""
    wrong = errors.rejected + errors.accepted
    precision, recall = errors.precision, errors.recall
    return {
        "accuracy": 1 - wrong / (errors.genuine + errors.forged),
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / max(precision + recall, _TINY),
    }


def impostor_pairs(fingers: Tensor, most: int = IMPOSTORS) -> tuple[Tensor, Tensor]:
    """Rows whose halves make pairs of unlike fingers: all there are, or about `most` of them.

    Row i is paired with row i + s for as many shifts s as are needed, spread evenly.
    """
    count = len(fingers)
    needed = min(-(-most // max(count, 1)), count - 1)
    shifts = torch.linspace(1, max(count - 1, 1), needed).round().long()
    first = torch.arange(count).repeat(needed)
    second = (first + shifts.repeat_interleave(count)) % max(count, 1)
    unlike = fingers[first] != fingers[second]
    return first[unlike][:most], second[unlike][:most]


class Normalised(nn.Module):
    """Embeddings of length 1."""

    def forward(self, embeddings: Tensor) -> Tensor:
        """The same directions."""
        return F.normalize(embeddings, dim=-1)


@dataclass(frozen=True)
class Verification:
    """Pairs of pictures of one finger each (target: which finger), and contrastive loss.

    The features of an example are those of its first picture, then those of its second one: the
    encoder `siamese` makes such. Impostor pairs are made of the halves of two examples, in
    training of as many as there are genuine ones.
    """

    margin: float = 1.0
    embedding: int = 128
    normalised: bool = False
    """Whether embeddings are scaled to length 1."""
    compares_examples: ClassVar[bool] = True
    """Its loss is not a sum of those of single examples."""
    metric: str = "eer"
    higher_is_better: bool = False

    def head(self, features: int) -> nn.Module:
        """One linear layer for both pictures."""
        layers = nn.Unflatten(1, (2, features // 2)), nn.Linear(features // 2, self.embedding)
        return nn.Sequential(*layers, *([Normalised()] if self.normalised else []))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean over the genuine pairs and the impostor pairs half a batch apart."""
        left, right = output.unbind(1)
        shift = len(output) // 2
        same = torch.ones_like(target, dtype=torch.bool)
        genuine = contrastive_loss(distance(left, right), same, self.margin)
        impostor = contrastive_loss(distance(left, right.roll(shift, 0)), ~same, self.margin)
        unlike = (target != target.roll(shift)).to(output.dtype)
        return (genuine.sum() + (impostor * unlike).sum()) / (len(output) + unlike.sum())

    def meter(self) -> Meter:
        """No pairs yet."""
        return VerificationMeter(self.margin)
