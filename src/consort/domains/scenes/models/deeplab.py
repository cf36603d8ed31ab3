"""DeepLabV3 and DeepLabV3+ (Chen et al. 2017, 2018): atrous (dilated) convolutions.

The sizes are those of torchvision and segmentation-models-pytorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.models.layers import convolution


def atrous_convolution(inputs: int, outputs: int, rate: int = 1) -> nn.Sequential:
    """A 3x3 atrous convolution, with BatchNorm and ReLU.

    Args:
        inputs: The number of input channels.
        outputs: The number of output channels.
        rate: The dilation.

    Returns:
        The three layers in sequence.
    """
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=rate, dilation=rate, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


def separable_atrous_convolution(inputs: int, outputs: int, rate: int = 1) -> nn.Sequential:
    """A depthwise separable 3x3 atrous convolution, with BatchNorm and ReLU.

    Args:
        inputs: The number of input channels.
        outputs: The number of output channels.
        rate: The dilation.

    Returns:
        The layers in sequence.
    """
    alone = nn.Conv2d(inputs, inputs, 3, padding=rate, dilation=rate, groups=inputs, bias=False)
    return nn.Sequential(alone, *convolution(inputs, outputs, 1))


class AtrousPyramid(nn.Module):
    """ASPP: a 1x1 convolution, atrous convolutions and global pooling in parallel, concatenated.

    Args:
        inputs: The number of input channels.
        channels: The number of output channels.
        rates: The dilation rates.
        apart: Whether the convolutions are depthwise separable.
    """

    def __init__(self, inputs: int, channels: int, rates: Sequence[int], apart: bool) -> None:
        super().__init__()
        atrous = separable_atrous_convolution if apart else atrous_convolution
        self.branches = nn.ModuleList(
            [
                convolution(inputs, channels, 1),
                *(atrous(inputs, channels, rate) for rate in rates),
                nn.Sequential(nn.AdaptiveAvgPool2d(1), *convolution(inputs, channels, 1)),
            ]
        )
        self.together = nn.Sequential(
            *convolution(channels * len(self.branches), channels, 1), nn.Dropout(0.5)
        )

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps of the same size as `maps`."""
        outputs = [branch(maps).expand(-1, -1, *maps.shape[2:]) for branch in self.branches]
        together: Tensor = self.together(torch.cat(outputs, 1))
        return together


class DeepLabV3(nn.Module):
    """ASPP on the last feature map and a 3x3 convolution, resized to the first feature map.

    Args:
        widths: The number of channels of each feature map.
        channels: The number of output channels.
        rates: The dilation rates, in pixels of the last feature map.
    """

    def __init__(self, widths: Sequence[int], channels: int, rates: Sequence[int]) -> None:
        super().__init__()
        self.pyramid = AtrousPyramid(widths[-1], channels, rates, apart=False)
        self.last = atrous_convolution(channels, channels)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """One feature map of the size of the first of `maps`."""
        return F.interpolate(self.last(self.pyramid(maps[-1])), maps[0].shape[2:], mode="bilinear")


class DeepLabV3Plus(nn.Module):
    """ASPP on the last feature map, fused with the first one; its convolutions are separable.

    Args:
        widths: The number of channels of each feature map.
        channels: The number of output channels.
        rates: The dilation rates, in pixels of the last feature map.
    """

    def __init__(self, widths: Sequence[int], channels: int, rates: Sequence[int]) -> None:
        super().__init__()
        few = max(1, channels * 3 // 16)  # 48 of 256
        self.pyramid = AtrousPyramid(widths[-1], channels, rates, apart=True)
        self.middle = separable_atrous_convolution(channels, channels)
        self.fine = convolution(widths[0], few, 1)
        self.last = separable_atrous_convolution(channels + few, channels)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """One feature map of the size of the first of `maps`."""
        coarse = self.middle(self.pyramid(maps[-1]))
        large = F.interpolate(coarse, maps[0].shape[2:], mode="bilinear")
        joined: Tensor = self.last(torch.cat([large, self.fine(maps[0])], 1))
        return joined


class PlainHead(nn.Module):
    """A 1x1 convolution, then upsampling by four.

    Args:
        features: The number of input channels.
        outputs: The number of outputs per pixel.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.last = nn.Conv2d(features, outputs, 1)

    def forward(self, maps: Tensor) -> Tensor:
        """Outputs of four times the size of `maps`."""
        return F.interpolate(self.last(maps), scale_factor=4, mode="bilinear")
