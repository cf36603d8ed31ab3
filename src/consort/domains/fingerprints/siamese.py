"""A small convolutional network that processes both images of a pair with the same weights."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Literal

from pydantic import PositiveFloat
from torch import Tensor, nn

from consort.errors import UsageError
from consort.models.inputs import pair_shape
from consort.models.layers import convolution, thinned

MAPS = (32, 64, 128, 256)
"""The number of feature maps of each convolution at scale 1."""
SMALLEST_SIDE = 2 ** len(MAPS)


class Siamese(nn.Module):
    """Four 3x3 convolutions with a norm and pooling, applied to both images of a pair.

    The features are the mean of each feature map, of the first image and then of the second.

    Args:
        shape: Channels, height and width of one image.
        scale: The factor for the number of feature maps.
        norm: BatchNorm, or GroupNorm with one group; DP-SGD needs the latter, because BatchNorm
            mixes the examples of a batch.

    Raises:
        UsageError: If the images are smaller than 16x16 pixels.
    """

    measure = staticmethod(pair_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        scale: PositiveFloat = 1.0,
        norm: Literal["batch", "group"] = "batch",
    ) -> None:
        super().__init__()
        channels, *sides = shape
        if min(sides) < SMALLEST_SIDE:
            raise UsageError(f"it needs images of at least {SMALLEST_SIDE}x{SMALLEST_SIDE} pixels")
        maps = [channels, *(thinned(full, scale) for full in MAPS)]
        kind = nn.BatchNorm2d if norm == "batch" else partial(nn.GroupNorm, 1)
        self.convolutions = nn.Sequential(
            *(
                nn.Sequential(convolution(*pair, 3, padding=1, norm=kind), nn.MaxPool2d(2))
                for pair in pairwise(maps)
            )
        )
        self.width = 2 * maps[-1]

    def forward(self, pairs: Tensor) -> Tensor:
        """The features of a batch of `pairs`."""
        maps: Tensor = self.convolutions(pairs.flatten(0, 1))
        return maps.mean((2, 3)).view(-1, self.width)  # for any number of pairs, once traced
