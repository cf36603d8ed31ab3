"""What tasks with an answer for every pixel have in common."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

IGNORED = 255
"""The target of a pixel that nobody knows the answer for."""


class DenseHead(nn.Module):
    """FedHCA²'s head: two steps to the size of the image, then the outputs of every pixel."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        half, quarter = max(features // 2, 1), max(features // 4, 1)
        self.first = nn.ConvTranspose2d(features, half, 2, stride=2)
        self.second = nn.ConvTranspose2d(half, quarter, 2, stride=2)
        self.last = nn.Conv2d(quarter, outputs, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Outputs of the fourfold size."""
        outputs: Tensor = self.last(self.second(self.first(maps)))
        return outputs


class DenseTask:
    """A task whose outputs are maps of the size of the image, channels first."""

    dense: ClassVar[bool] = True
    points: ClassVar[bool] = False
    """Whether targets are places (x, y, how well seen, …) rather than maps."""
    ignored: ClassVar[int] = IGNORED
    """What maps have where nobody knows the answer."""

    @property
    def outputs(self) -> int:
        """How many numbers there are for every pixel."""
        raise NotImplementedError

    def head(self, features: int) -> nn.Module:
        """A head on maps of a quarter of the size of the image."""
        return DenseHead(features, self.outputs)

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002
        """What a target that was moved means in an image that was enlarged or mirrored."""
        return target


def mean_over(values: Tensor, valid: Tensor) -> Tensor:
    """The sum over valid pixels by their number; zero, if there is none."""
    return values.where(valid, 0.0).sum() / valid.sum().clamp(min=1)


def mean_over_hardest(losses: Tensor, valid: Tensor, share: float) -> Tensor:
    """The mean over this share of the valid pixels, those with the largest losses (at least 0)."""
    count = (share * valid.sum()).ceil()
    largest = losses.where(valid, 0.0).flatten().sort(descending=True).values
    return largest.where(torch.arange(len(largest)) < count, 0.0).sum() / count.clamp(min=1)
