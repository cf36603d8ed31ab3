"""SigNet, the convolutional network for signatures of Hafemann et al. (2017), and SigNet-S."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from consort.errors import UsageError
from consort.models.inputs import image_shape
from consort.models.layers import convolution, dense, shrunk, thinned


class SigNet(nn.Module):
    """SigNet: five convolutions and two fully connected layers, all with BatchNorm.

    Args:
        shape: Channels, height and width of the images.
        scale: The factor for the width of all layers but the last.
        features: The width of the last layer.
        stride: The stride of the first convolution; small images need a smaller one.
        bias: Whether convolutions and layers have a bias beside BatchNorm's.

    Raises:
        UsageError: If the images are too small for `stride`.
    """

    measure = staticmethod(image_shape)
    maps: ClassVar[tuple[int, ...]] = (96, 256, 384, 384, 256)
    hidden: ClassVar[tuple[int, ...]] = (2048,)

    def __init__(
        self,
        shape: tuple[int, int, int],
        scale: PositiveFloat = 1.0,
        features: PositiveInt = 2048,
        stride: PositiveInt = 4,
        bias: bool = False,
    ) -> None:
        super().__init__()
        channels, *sides = shape
        height, width = (_last_side(side, stride) for side in sides)
        if min(height, width) < 1:
            smallest = 11 + 14 * stride
            raise UsageError(
                f"with stride = {stride} it needs images of at least {smallest}x{smallest} pixels; "
                "take larger images or a smaller 'stride'"
            )
        first, *others = (thinned(full, scale) for full in self.maps)
        hidden = (thinned(full, scale) for full in self.hidden)
        self.convolutions = nn.Sequential(
            convolution(channels, first, 11, stride, bias=bias),
            nn.MaxPool2d(3, 2),
            convolution(first, others[0], 5, padding=2, bias=bias),
            nn.MaxPool2d(3, 2),
            *(convolution(*pair, 3, padding=1, bias=bias) for pair in pairwise(others)),
            nn.MaxPool2d(3, 2),
        )
        widths = (others[-1] * height * width, *hidden, features)
        self.layers = nn.Sequential(*(dense(*pair, bias) for pair in pairwise(widths)))
        self.width = features

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        features: Tensor = self.layers(self.convolutions(images).flatten(1))
        return features


class SigNetS(SigNet):
    """SigNet-S: SigNet without its fourth convolution and its second fully connected layer."""

    maps = (96, 256, 384, 256)
    hidden = ()


def _last_side(side: int, stride: int) -> int:
    side = shrunk(side, 11, stride)
    for _ in range(3):
        side = shrunk(side, 3, 2)
    return side
