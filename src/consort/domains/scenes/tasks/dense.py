"""What dense (per-pixel) tasks have in common."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

IGNORED = 255
"""The target of unlabelled pixels."""


class DenseHead(nn.Module):
    """FedHCA²'s head: two transposed convolutions to the size of the image, then the outputs.

    Args:
        features: The number of input channels.
        outputs: The number of outputs per pixel.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        half, quarter = max(features // 2, 1), max(features // 4, 1)
        self.first = nn.ConvTranspose2d(features, half, 2, stride=2)
        self.second = nn.ConvTranspose2d(half, quarter, 2, stride=2)
        self.last = nn.Conv2d(quarter, outputs, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Outputs of four times the size of `maps`."""
        outputs: Tensor = self.last(self.second(self.first(maps)))
        return outputs


class DenseTask:
    """The base class of tasks whose outputs are maps of the size of the image, channels first."""

    dense: ClassVar[bool] = True
    """Marks tasks that need an encoder with feature maps."""
    augmentation: ClassVar[str] = "scenes"
    points: ClassVar[bool] = False
    """Whether targets are points (x, y, visibility, …) rather than maps."""
    ignored: ClassVar[int] = IGNORED
    """The target of unlabelled pixels."""

    @property
    def outputs(self) -> int:
        """The number of outputs per pixel."""
        raise NotImplementedError

    def head(self, features: int) -> nn.Module:
        """A head on feature maps with `features` channels, of a quarter of the image's size."""
        return DenseHead(features, self.outputs)

    def seen(self, target: Tensor, scale: Tensor, mirrored: Tensor) -> Tensor:  # noqa: ARG002
        """Adapts the values of targets to an augmented image; their positions are already moved.

        Args:
            target: The moved targets of a batch.
            scale: The factor by which each image was enlarged.
            mirrored: Whether each image was mirrored.

        Returns:
            The targets of the augmented images.
        """
        return target


def mean_over(values: Tensor, valid: Tensor) -> Tensor:
    """The mean of `values` over `valid` pixels; zero if there are none."""
    return values.where(valid, 0.0).sum() / valid.sum().clamp(min=1)


def mean_over_hardest(losses: Tensor, valid: Tensor, share: float) -> Tensor:
    """The mean loss over the hardest of the valid pixels.

    Args:
        losses: The loss of every pixel, not negative.
        valid: Which pixels count.
        share: The share of them to average, those with the largest losses.

    Returns:
        A scalar; zero if no pixel is valid.
    """
    count = (share * valid.sum()).ceil()
    largest = losses.where(valid, 0.0).flatten().sort(descending=True).values
    return largest.where(torch.arange(len(largest)) < count, 0.0).sum() / count.clamp(min=1)
