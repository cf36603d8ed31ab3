"""ScConv: spatial and channel reconstruction (Li et al. 2023), which reduces redundancy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

GROUPS = 4
"""The number of groups of the GroupNorm."""
GATE = 0.5
"""The threshold that separates informative from other values."""


class SpatialReconstruction(nn.Module):
    """SRU: separates feature maps by a gate on normalised values and adds the halves crosswise.

    Args:
        channels: The number of input and output channels.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps of the same shape as `maps`."""
        normed = self.norm(maps)
        weight = self.norm.weight
        importance = torch.sigmoid(normed * (weight / weight.sum()).view(-1, 1, 1))
        informative = normed * (importance >= GATE)
        first, second = informative.chunk(2, 1)
        other_first, other_second = (normed - informative).chunk(2, 1)
        return torch.cat([first + other_second, second + other_first], 1)


class ChannelReconstruction(nn.Module):
    """CRU: an expensive and a cheap half of the channels, fused by a softmax over their means.

    Args:
        channels: The number of input and output channels, a multiple of four.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        half, quarter = channels // 2, channels // 4
        self.squeeze_rich = nn.Conv2d(half, quarter, 1, bias=False)
        self.squeeze_cheap = nn.Conv2d(half, quarter, 1, bias=False)
        self.grouped = nn.Conv2d(quarter, channels, 3, padding=1, groups=2)
        self.pointwise = nn.Conv2d(quarter, channels, 1, bias=False)
        self.completing = nn.Conv2d(quarter, channels - quarter, 1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps of the same shape as `maps`."""
        rich, cheap = maps.chunk(2, 1)
        rich, cheap = self.squeeze_rich(rich), self.squeeze_cheap(cheap)
        both = torch.cat(
            [self.grouped(rich) + self.pointwise(rich), self.completing(cheap), cheap], 1
        )
        shares = both.mean((2, 3), keepdim=True).softmax(1)
        first, second = (both * shares).chunk(2, 1)
        return first + second


class ScConv(nn.Sequential):
    """Spatial, then channel reconstruction.

    Args:
        channels: The number of input and output channels, a multiple of eight.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(SpatialReconstruction(channels), ChannelReconstruction(channels))
