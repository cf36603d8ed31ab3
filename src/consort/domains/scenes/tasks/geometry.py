"""Surface normals and depth."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.domains.scenes.metrics.dense import angles
from consort.domains.scenes.tasks.dense import IGNORED, DenseTask, mean_over
from consort.tasks.task import Meter

FARTHEST = 80.0
"""Depths of this and more metres, and those of zero, are unknown."""


def known_normals(target: Tensor) -> Tensor:
    """Which pixels of `target` have a normal, as one channel."""
    return (target != IGNORED).all(1, keepdim=True)


def known_depths(target: Tensor) -> Tensor:
    """Which pixels of `target` have a depth."""
    return (target > 0) & (target < FARTHEST)


class NormalsMeter:
    """The mean angular error in degrees, and the loss."""

    def __init__(self) -> None:
        self.angle, self.loss, self.pixels = 0.0, 0.0, 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of vectors: predictions (`output`) and truths (`target`)."""
        known, target = known_normals(target)[:, 0], target.to(output.dtype)
        unit = F.normalize(output, dim=1)
        self.angle += float(angles(unit, F.normalize(target, dim=1))[known].double().sum())
        self.loss += float((unit - target).abs().sum(1)[known].double().sum())
        self.pixels += int(known.sum())

    def compute(self) -> dict[str, float]:
        """The metrics; empty if no pixel was labelled."""
        if not self.pixels:
            return {}
        return {"mean_error": self.angle / self.pixels, "loss": self.loss / self.pixels}


@dataclass(frozen=True)
class Normals(DenseTask):
    """The normal of every pixel (right, down or up, towards the camera); reported in degrees."""

    metric: str = "mean_error"
    higher_is_better: bool = False

    @property
    def outputs(self) -> int:
        """The three components of a vector."""
        return 3

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean absolute error of normalised `output` from the unit vectors `target`."""
        errors = (F.normalize(output, dim=1) - target.to(output.dtype)).abs().sum(1, keepdim=True)
        return mean_over(errors, known_normals(target))

    def meter(self) -> Meter:
        """A new, empty meter."""
        return NormalsMeter()

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002
        """In a mirrored image the horizontal component changes its sign."""
        sideways = target[:, :1]
        turned = mirrored[:, None, None, None] & (sideways != IGNORED)
        return torch.cat([torch.where(turned, -sideways, sideways), target[:, 1:]], 1)


class DepthMeter:
    """Root mean squared and mean absolute error over all known pixels."""

    def __init__(self) -> None:
        self.squares, self.loss, self.pixels = 0.0, 0.0, 0

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch of depths: predictions (`output`) and truths (`target`)."""
        known = known_depths(target)
        truth, found = target[known].double(), output[:, 0][known].double()
        self.squares += float((found.clamp(min=0) - truth).square().sum())
        self.loss += float((found - truth).abs().sum())
        self.pixels += int(known.sum())

    def compute(self) -> dict[str, float]:
        """The metrics; empty if no depth was known."""
        if not self.pixels:
            return {}
        return {"rmse": (self.squares / self.pixels) ** 0.5, "loss": self.loss / self.pixels}


@dataclass(frozen=True)
class Depth(DenseTask):
    """The depth of every pixel in metres; reported by the root mean squared error."""

    metric: str = "rmse"
    higher_is_better: bool = False

    @property
    def outputs(self) -> int:
        """The depth."""
        return 1

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean absolute error of `output` at the pixels of `target` with a known depth."""
        errors = (output[:, 0] - target.to(output.dtype)).abs()
        return mean_over(errors, known_depths(target))

    def meter(self) -> Meter:
        """A new, empty meter."""
        return DepthMeter()

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002
        """In an enlarged image everything is nearer."""
        nearer = (target / scale[:, None, None]).to(target.dtype)
        return torch.where(known_depths(target), nearer, target)
