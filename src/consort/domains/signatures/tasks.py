"""Two things to learn about a signature: whose it is, and whether it is genuine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.metrics.biometric import area_under_curve, equal_error_rate
from consort.tasks.task import Meter

_IGNORED = -100


def identity(users: Tensor, genuine: Tensor) -> Tensor:
    """The target of `Identification`: the user u, or ~u = -1 - u where a forger imitates u."""
    return torch.where(genuine.bool(), users, ~users)


def claimed_user(target: Tensor) -> Tensor:
    """The user each signature claims to be from, from a target of `Identification`."""
    return torch.where(target < 0, ~target, target)


def imitation_loss(output: Tensor, target: Tensor) -> Tensor:
    """How surely forgeries are taken for the users they imitate: the mean of -log(1 - p).

    Takes what `Identification` takes; zero if there is no forgery, or no other user.
    """
    if output.shape[1] < 2:
        return output.sum() * 0
    imitated = F.one_hot(claimed_user(target), output.shape[1]).bool()
    others = output.masked_fill(imitated, -torch.inf).logsumexp(1)
    surprise = (output.logsumexp(1) - others).where(target < 0, 0.0)
    return surprise.sum() / (target < 0).sum().clamp(min=1)


class IdentificationMeter:
    """Accuracy and loss over genuine signatures; nothing, if there was none."""

    def __init__(self) -> None:
        self.hits, self.seen, self.loss = 0, 0, 0.0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch of logits and targets in."""
        genuine = target >= 0
        output, target = output[genuine], target[genuine]
        self.hits += int((output.argmax(1) == target).sum())
        self.seen += len(target)
        self.loss += F.cross_entropy(output, target, reduction="sum").item()

    def compute(self) -> dict[str, float]:
        """The mean of each."""
        if not self.seen:
            return {}
        return {"accuracy": self.hits / self.seen, "loss": self.loss / self.seen}


@dataclass(frozen=True)
class Identification:
    """Whose signature it is: cross entropy over `users`, of genuine signatures only.

    Targets are made by `identity`, so that those of forgeries are negative.
    """

    users: int
    metric: str = "accuracy"
    higher_is_better: bool = True

    def __post_init__(self) -> None:
        if self.users < 1:
            raise ValueError(f"identification needs at least one user, found {self.users}")

    def head(self, features: int) -> nn.Module:
        """A linear layer to one logit per user."""
        return nn.Linear(features, self.users)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean cross entropy over the genuine signatures; zero, if there is none."""
        target = target.where(target >= 0, _IGNORED)
        total = F.cross_entropy(output, target, ignore_index=_IGNORED, reduction="sum")
        return total / (target >= 0).sum().clamp(min=1)

    def meter(self) -> Meter:
        """An empty count."""
        return IdentificationMeter()


class DetectionMeter:
    """Accuracy and loss; AUC and EER as soon as there are both genuine and forged signatures."""

    def __init__(self) -> None:
        self.logits: list[Tensor] = []
        self.targets: list[Tensor] = []

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch of logits and targets in."""
        self.logits.append(output.detach().double())
        self.targets.append(target)

    def compute(self) -> dict[str, float]:
        """One threshold for all users: zero for the accuracy, the best one for the EER."""
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
    """Whether a signature is genuine (1) or a forgery (0): one logit; reported by its EER."""

    metric: str = "eer"
    higher_is_better: bool = False
    hidden: int = 128

    def head(self, features: int) -> nn.Module:
        """A hidden layer, then one logit per signature."""
        layers = nn.Linear(features, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 1)
        return nn.Sequential(*layers, nn.Flatten(0))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean binary cross entropy."""
        return F.binary_cross_entropy_with_logits(output, target.to(output.dtype))

    def meter(self) -> Meter:
        """No scores yet."""
        return DetectionMeter()
