"""The shape of what is seen: which way every surface faces, and how far away it is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.domains.scenes.metrics.dense import angles
from consort.domains.scenes.tasks.dense import IGNORED, DenseTask, mean_over
from consort.tasks.task import Meter

FARTHEST = 80.0
"""Depths from here on, and those of zero, are not known."""


def known_normals(target: Tensor) -> Tensor:
    """Pixels none of whose components is ignored, as one channel."""
    return (target != IGNORED).all(1, keepdim=True)


def known_depths(target: Tensor) -> Tensor:
    """Pixels with a depth."""
    return (target > 0) & (target < FARTHEST)


class NormalsMeter:
    """The mean angle to the truth in degrees, and the loss."""

    def __init__(self) -> None:
        self.angle, self.loss, self.pixels = 0.0, 0.0, 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch of vectors in."""
        known, target = known_normals(target)[:, 0], target.to(output.dtype)
        unit = F.normalize(output, dim=1)
        self.angle += float(angles(unit, F.normalize(target, dim=1))[known].double().sum())
        self.loss += float((unit - target).abs().sum(1)[known].double().sum())
        self.pixels += int(known.sum())

    def compute(self) -> dict[str, float]:
        """Nothing, if no pixel was known."""
        if not self.pixels:
            return {}
        return {"mean_error": self.angle / self.pixels, "loss": self.loss / self.pixels}


@dataclass(frozen=True)
class Normals(DenseTask):
    """The unit vector (right, down or up, towards us) of every surface; reported in degrees."""

    metric: str = "mean_error"
    higher_is_better: bool = False

    @property
    def outputs(self) -> int:
        """A vector."""
        return 3

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The absolute error of all three components, after outputs are scaled to length 1."""
        errors = (F.normalize(output, dim=1) - target.to(output.dtype)).abs().sum(1, keepdim=True)
        return mean_over(errors, known_normals(target))

    def meter(self) -> Meter:
        """No angles yet."""
        return NormalsMeter()

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002
        """In a mirror, right is left."""
        sideways = target[:, :1]
        turned = mirrored[:, None, None, None] & (sideways != IGNORED)
        return torch.cat([torch.where(turned, -sideways, sideways), target[:, 1:]], 1)


class DepthMeter:
    """Root mean squared and mean absolute error over all known pixels."""

    def __init__(self) -> None:
        self.squares, self.loss, self.pixels = 0.0, 0.0, 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch of depths in."""
        known = known_depths(target)
        truth, found = target[known].double(), output[:, 0][known].double()
        self.squares += float((found.clamp(min=0) - truth).square().sum())
        self.loss += float((found - truth).abs().sum())
        self.pixels += int(known.sum())

    def compute(self) -> dict[str, float]:
        """Nothing, if no pixel was known."""
        if not self.pixels:
            return {}
        return {"rmse": (self.squares / self.pixels) ** 0.5, "loss": self.loss / self.pixels}


@dataclass(frozen=True)
class Depth(DenseTask):
    """The distance of every pixel in metres; reported by the root mean squared error."""

    metric: str = "rmse"
    higher_is_better: bool = False

    @property
    def outputs(self) -> int:
        """One number."""
        return 1

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Mean absolute error of known pixels."""
        errors = (output[:, 0] - target.to(output.dtype)).abs()
        return mean_over(errors, known_depths(target))

    def meter(self) -> Meter:
        """No errors yet."""
        return DepthMeter()

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002
        """What is enlarged is nearer."""
        nearer = (target / scale[:, None, None]).to(target.dtype)
        return torch.where(known_depths(target), nearer, target)
