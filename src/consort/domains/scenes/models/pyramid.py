"""Encoders that return feature maps of several sizes, and decoders that fuse them.

The maps have a quarter of the image's size, an eighth, and so on. They serve dense (per-pixel)
tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from consort.core.bounds import LocalFile
from consort.domains.scenes.models.deeplab import DeepLabV3, DeepLabV3Plus, PlainHead
from consort.domains.scenes.tasks.dense import DenseTask
from consort.errors import UsageError
from consort.models.inputs import image_shape
from consort.models.layers import convolution

Decoder = Literal["fedhca2", "deeplabv3", "deeplabv3plus"]
RATES = (12, 24, 36)
"""The dilation rates of DeepLab."""
Sizes = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class PyramidDecoder(nn.Module):
    """FedHCA²'s decoder: a linear layer per feature map, then a layer that fuses all of them.

    Args:
        widths: The number of channels of each feature map.
        channels: The number of output channels.
    """

    def __init__(self, widths: Sequence[int], channels: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(width, channels) for width in widths)
        self.fuse = nn.Sequential(
            nn.Conv2d(channels * len(widths), channels, 1),
            nn.BatchNorm2d(channels),
            nn.LeakyReLU(inplace=True),
        )

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """One feature map of the size of the first of `maps`."""
        size = maps[0].shape[2:]
        narrow = [
            linear(part.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            for linear, part in zip(self.linears, maps, strict=True)
        ]
        resized = [F.interpolate(part, size, mode="bilinear") for part in narrow]
        fused: Tensor = self.fuse(torch.cat(resized, 1))
        return fused


class Pyramid(nn.Module):
    """The base class of encoders that return several feature maps.

    Args:
        widths: The number of channels of each feature map.
        channels: The number of channels of the decoders' outputs.
        decoder: The kind of decoder.
        rates: The dilation rates of DeepLab's decoders, in pixels of the last feature map.
    """

    dense = True

    def __init__(
        self, widths: Sequence[int], channels: int, decoder: Decoder, rates: Sequence[int]
    ) -> None:
        super().__init__()
        self.widths, self.width = tuple(widths), channels
        self._decoder, self._rates = decoder, tuple(rates)

    def decoder(self) -> nn.Module:
        """A new decoder for these feature maps."""
        match self._decoder:
            case "fedhca2":
                return PyramidDecoder(self.widths, self.width)
            case "deeplabv3":
                return DeepLabV3(self.widths, self.width, self._rates)
            case "deeplabv3plus":
                return DeepLabV3Plus(self.widths, self.width, self._rates)

    def head(self, task: DenseTask) -> nn.Module:
        """A new head for `task` on such a decoder."""
        if self._decoder == "fedhca2":
            return task.head(self.width)
        return PlainHead(self.width, task.outputs)


def pyramid_shape(example: Tensor) -> tuple[int, int, int]:
    """Channels, height and width of an image `example` whose sides are multiples of 4.

    Raises:
        UsageError: If it is not such an image.
    """
    channels, height, width = image_shape(example)
    if height % 4 or width % 4:
        raise UsageError("it needs images whose height and width are multiples of 4")
    return channels, height, width


class ConvPyramid(Pyramid):
    """Stages of two 3x3 convolutions, each at half the resolution of the previous; a small encoder.

    Args:
        shape: Channels, height and width of the images.
        widths: The number of channels of each stage.
        channels: The number of channels of the decoders.
        weights: A safetensors file of initial parameters of the encoder; none if empty.
        decoder: The kind of decoder.
        rates: The dilation rates of DeepLab's decoders, in pixels of the last feature map.

    Raises:
        UsageError: If the images are too small for the stages.
    """

    measure = staticmethod(pyramid_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        widths: Sizes = (16, 32, 64),
        channels: PositiveInt = 24,
        weights: LocalFile = "",
        decoder: Decoder = "fedhca2",
        rates: Sizes = RATES,
    ) -> None:
        super().__init__(widths, channels, decoder, rates)
        if max(shape[1:]) <= 2 ** (len(widths) + 1):
            raise UsageError(f"it has too many stages ({len(widths)}): give fewer 'widths'")
        first, *others = widths
        self.stem = convolution(shape[0], first, 3, stride=2, padding=1)
        self.stages = nn.ModuleList()
        for before, after in zip((first, *widths), (first, *others), strict=False):
            self.stages.append(
                nn.Sequential(
                    convolution(before, after, 3, stride=2, padding=1),
                    convolution(after, after, 3, padding=1),
                )
            )
        load_weights(self, weights)

    def forward(self, images: Tensor) -> list[Tensor]:
        """The feature maps of a batch of `images`, the largest first."""
        maps, found = self.stem(images), []
        for stage in self.stages:
            maps = stage(maps)
            found.append(maps)
        return found


def load_weights(module: nn.Module, path: str) -> None:
    """Loads parameters from a safetensors file; entries that the module lacks are ignored.

    Args:
        module: The module, changed in place.
        path: The file; nothing happens if it is empty.

    Raises:
        UsageError: If the file cannot be read, or a parameter is missing or has another shape.
    """
    if not path:
        return
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        missing = module.load_state_dict(load_file(Path(path)), strict=False).missing_keys
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"its weights {path} cannot be loaded: {reason}") from error
    if missing:
        raise UsageError(
            f"its weights {path} have no {missing[0]!r}: they belong to another architecture"
        )
