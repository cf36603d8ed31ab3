"""HTCSigNet: a transformer and a convolutional branch in parallel (Zheng et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from consort.domains.signatures.models.scconv import ScConv
from consort.errors import UsageError
from consort.models.inputs import image_shape
from consort.models.layers import convolution, dense, padded, shrunk, thinned
from consort.models.vit import VisionTransformer

PATCH = 16
"""The side of the transformer's patches in pixels."""


class HTCSigNet(nn.Module):
    """HTCSigNet: ViT-B on refined images, parallel to a convolutional branch with ScConv.

    Images are padded with zeros to a whole number of patches.

    Args:
        shape: Channels, height and width of the images.
        scale: The factor for the width of all layers but the last.
        features: The width of the last layer.
        depth: The number of transformer blocks.
        stride: The stride of the branch's 5x5 convolution; small images need a smaller one.

    Raises:
        UsageError: If the images are too small for `stride`.
    """

    measure = staticmethod(image_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        scale: PositiveFloat = 1.0,
        features: PositiveInt = 2048,
        depth: PositiveInt = 12,
        stride: PositiveInt = 2,
    ) -> None:
        super().__init__()
        channels, *sides = shape
        first = 8 * thinned(16, scale)  # ScConv needs a multiple of eight
        second, third, branch = (thinned(full, scale) for full in (64, 32, 512))
        self.conv1 = convolution(channels, first, 3, padding=1)
        self.conv2 = convolution(first, second, 3, padding=1)
        self.conv3 = convolution(second, third, 3, padding=1)
        self.conv4 = nn.Conv2d(third, channels, 1)
        self.transformer = VisionTransformer(shape, PATCH, scale, depth)
        self.halve1, self.halve3 = _halving(first, first), _halving(third, first)
        last = [_last_side(side, stride) for side in sides]
        self.branch = _branch(first, branch, last, scale, stride)
        self.fuse = dense(self.transformer.width + branch, features)
        self.width = features

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        images = padded(images, PATCH)
        first = self.conv1(images)
        third = self.conv3(self.conv2(first))
        token = self.transformer(images + self.conv4(third))
        local = self.branch(self.halve1(first) + self.halve3(third))
        features: Tensor = self.fuse(torch.cat([token, local], 1))
        return features


def _halving(inputs: int, outputs: int) -> nn.Sequential:
    """Halves height and width without losing pixels: four neighbours become four channels."""
    return nn.Sequential(
        nn.PixelUnshuffle(2),
        nn.Conv2d(4 * inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.SiLU(),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def _branch(
    inputs: int, outputs: int, last: Sequence[int], scale: float, stride: int
) -> nn.Sequential:
    maps = [thinned(full, scale) for full in (256, 384, 384, 256)]
    return nn.Sequential(
        ScConv(inputs),
        nn.MaxPool2d(3, 2),
        convolution(inputs, maps[0], 5, stride),
        nn.MaxPool2d(3, 2),
        *(convolution(*pair, 3, padding=1) for pair in pairwise(maps)),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        dense(maps[-1] * last[0] * last[1], outputs),
    )


def _last_side(side: int, stride: int) -> int:
    """The side of the branch's last feature maps; an error if it would be empty."""
    halved = -(-side // PATCH) * PATCH // 2
    last = shrunk(shrunk(shrunk(shrunk(halved, 3, 2), 5, stride), 3, 2), 3, 2)
    if last < 1:
        smallest = -(-(22 + 24 * stride) // PATCH) * PATCH - PATCH + 1
        raise UsageError(
            f"with stride = {stride} it needs images of at least {smallest}x{smallest} pixels; "
            "take larger images or a smaller 'stride'"
        )
    return last
