"""DeepLabV3 and DeepLabV3+: one small map, seen through holes of several sizes.

Chen et al. 2017 and 2018; the sizes are those of torchvision and segmentation-models-pytorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.models.layers import convolution


def holed(inputs: int, outputs: int, rate: int = 1) -> nn.Sequential:
    """A 3x3 convolution that sees every `rate`th pixel, with BatchNorm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=rate, dilation=rate, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def holed_apart(inputs: int, outputs: int, rate: int = 1) -> nn.Sequential:
    """The same in two steps: every channel for itself, then every pixel for itself."""
    alone = nn.Conv2d(inputs, inputs, 3, padding=rate, dilation=rate, groups=inputs, bias=False)
    return nn.Sequential(alone, *convolution(inputs, outputs, 1))


class HoledPyramid(nn.Module):
    """ASPP: a map pixel by pixel, through holes of every rate, and as a whole, put together."""

    def __init__(self, inputs: int, channels: int, rates: Sequence[int], apart: bool) -> None:
        super().__init__()
        through = holed_apart if apart else holed
        self.branches = nn.ModuleList(
            [
                convolution(inputs, channels, 1),
                *(through(inputs, channels, rate) for rate in rates),
                nn.Sequential(nn.AdaptiveAvgPool2d(1), *convolution(inputs, channels, 1)),
            ]
        )
        self.together = nn.Sequential(
            *convolution(channels * len(self.branches), channels, 1), nn.Dropout(0.5)
        )

    def forward(self, maps: Tensor) -> Tensor:
        """A map of the same size."""
        seen = [branch(maps).expand(-1, -1, *maps.shape[2:]) for branch in self.branches]
        together: Tensor = self.together(torch.cat(seen, 1))
        return together


class DeepLabV3(nn.Module):
    """ASPP of the last map and a 3x3 convolution, in the size of the first map."""

    def __init__(self, widths: Sequence[int], channels: int, rates: Sequence[int]) -> None:
        super().__init__()
        self.pyramid = HoledPyramid(widths[-1], channels, rates, apart=False)
        self.last = holed(channels, channels)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """One map of the size of the first."""
        return F.interpolate(self.last(self.pyramid(maps[-1])), maps[0].shape[2:], mode="bilinear")


class DeepLabV3Plus(nn.Module):
    """ASPP of the last map, joined by the first map; its convolutions work in two steps."""

    def __init__(self, widths: Sequence[int], channels: int, rates: Sequence[int]) -> None:
        super().__init__()
        few = max(1, channels * 3 // 16)  # 48 of 256
        self.pyramid = HoledPyramid(widths[-1], channels, rates, apart=True)
        self.middle = holed_apart(channels, channels)
        self.fine = convolution(widths[0], few, 1)
        self.last = holed_apart(channels + few, channels)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """One map of the size of the first."""
        coarse = self.middle(self.pyramid(maps[-1]))
        large = F.interpolate(coarse, maps[0].shape[2:], mode="bilinear")
        joined: Tensor = self.last(torch.cat([large, self.fine(maps[0])], 1))
        return joined


class PlainHead(nn.Module):
    """The outputs of every pixel of a map, then four times as large."""

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.last = nn.Conv2d(features, outputs, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Outputs of the fourfold size."""
        return F.interpolate(self.last(maps), scale_factor=4, mode="bilinear")
