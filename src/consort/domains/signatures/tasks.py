"""The two tasks on signatures: identifying the user and detecting forgeries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.metrics.biometric import area_under_curve, equal_error_rate
from consort.tasks.task import Meter

_IGNORED = -100


def identity(users: Tensor, genuine: Tensor) -> Tensor:
    """The targets of `Identification`: u for a signature of user u, ~u = -1 - u for a forgery.

    Args:
        users: The claimed user of each signature.
        genuine: Whether the claimed user wrote it.

    Returns:
        The targets.
    """
    return torch.where(genuine.bool(), users, ~users)


def claimed_user(target: Tensor) -> Tensor:
    """The claimed user of each signature, recovered from a `target` of `Identification`."""
    return torch.where(target < 0, ~target, target)


def imitation_loss(output: Tensor, target: Tensor) -> Tensor:
    """Penalises forgeries that are classified as the imitated user: the mean of -log(1 - p).

    Args:
        output: Logits of `Identification`, signatures x users.
        target: Targets of `Identification`; negative for forgeries.

    Returns:
        A scalar; zero if there is no forgery or only one user.
    """
    if output.shape[1] < 2:
        return output.sum() * 0
    imitated = F.one_hot(claimed_user(target), output.shape[1]).bool()
    others = output.masked_fill(imitated, -torch.inf).logsumexp(1)
    surprise = (output.logsumexp(1) - others).where(target < 0, 0.0)
    return surprise.sum() / (target < 0).sum().clamp(min=1)


class IdentificationMeter:
    """Accuracy and loss over genuine signatures."""

    def __init__(self) -> None:
        self.hits, self.seen, self.loss = 0, 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch.

        Args:
            output: Logits, signatures x users.
            target: The targets, negative for forgeries.
        """
        genuine = target >= 0
        output, target = output[genuine], target[genuine]
        self.hits += int((output.argmax(1) == target).sum())
        self.seen += len(target)
        self.loss += F.cross_entropy(output, target, reduction="sum").item()

    def compute(self) -> dict[str, float]:
        """The mean accuracy and loss; empty if there were no genuine signatures."""
        if not self.seen:
            return {}
        return {"accuracy": self.hits / self.seen, "loss": self.loss / self.seen}


@dataclass(frozen=True)
class Identification:
    """Identification of the user, with cross entropy over genuine signatures only.

    The targets are those of `identity`, negative for forgeries.

    Raises:
        ValueError: If there is no user.
    """

    users: int
    """The number of users."""
    metric: str = "accuracy"
    higher_is_better: bool = True
    augmentation: ClassVar[str] = "signatures"
    balancing: ClassVar[str] = "signatures"

    def __post_init__(self) -> None:
        if self.users < 1:
            raise ValueError(f"identification needs at least one user, found {self.users}")

    def head(self, features: int) -> nn.Module:
        """A linear layer from `features` inputs to one logit per user."""
        return nn.Linear(features, self.users)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean cross entropy of genuine signatures; zero if there are none.

        Args:
            output: Logits, signatures x users.
            target: The targets, negative for forgeries.

        Returns:
            A scalar.
        """
        target = target.where(target >= 0, _IGNORED)
        total = F.cross_entropy(output, target, ignore_index=_IGNORED, reduction="sum")
        return total / (target >= 0).sum().clamp(min=1)

    def imitation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """How surely forgeries are taken for the users they imitate, see `imitation_loss`."""
        return imitation_loss(output, target)

    def meter(self) -> Meter:
        """A new, empty meter."""
        return IdentificationMeter()


class DetectionMeter:
    """Accuracy and loss; also AUC and EER if there are both genuine and forged signatures."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.targets: list[Tensor] = []

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch.

        Args:
            output: One logit per signature.
            target: 1 for genuine signatures, 0 for forgeries.
        """
        self.logits.append(output.detach().double())
        self.targets.append(target)

    def compute(self) -> dict[str, float]:
        """The metrics at one threshold for all users: 0 for accuracy, the optimum for the EER."""
        logits, genuine = torch.cat(self.logits), torch.cat(self.targets).bool()
        metrics = {
            "accuracy": ((logits >= 0) == genuine).double().mean().item(),
            "loss": F.binary_cross_entropy_with_logits(logits, genuine.double()).item(),
        }
        if 0 < genuine.sum() < len(genuine):
            scores = logits[genuine], logits[~genuine]
            metrics |= {"auc": area_under_curve(*scores), "eer": equal_error_rate(*scores)}
        return metrics


@dataclass(frozen=True)
class Detection:
    """Detection of forgeries: genuine (1) or forged (0), by one logit; reported by the EER."""

    metric: str = "eer"
    higher_is_better: bool = False
    hidden: int = 128
    """The width of the hidden layer of the head."""
    augmentation: ClassVar[str] = "signatures"
    balancing: ClassVar[str] = "signatures"

    def head(self, features: int) -> nn.Module:
        """A hidden layer on `features` inputs, then one logit per signature."""
        layers = nn.Linear(features, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1)
        return nn.Sequential(*layers, nn.Flatten(0))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean binary cross entropy of the logits `output` for the truths `target`."""
        return F.binary_cross_entropy_with_logits(output, target.to(output.dtype))

    def meter(self) -> Meter:
        """A new, empty meter."""
        return DetectionMeter()
