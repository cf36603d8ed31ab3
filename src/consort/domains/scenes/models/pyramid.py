"""Encoders that make maps of several sizes, and the decoders that put them together.

The maps are a quarter of the image's size, an eighth, and so on. For tasks with an answer for every
pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from consort.domains.scenes.models.deeplab import DeepLabV3, DeepLabV3Plus, PlainHead
from consort.domains.scenes.tasks.dense import DenseTask
from consort.errors import UsageError
from consort.models.inputs import image_shape
from consort.models.layers import convolution

Decoder = Literal["fedhca2", "deeplabv3", "deeplabv3plus"]
RATES = (12, 24, 36)
Sizes = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class PyramidDecoder(nn.Module):
    """FedHCA²'s decoder: every map through a linear layer, then all of them through another."""

    def __init__(self, widths: Sequence[int], channels: int) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(width, channels) for width in widths)
        self.fuse = nn.Sequential(
            nn.Conv2d(channels * len(widths), channels, 1),
            nn.BatchNorm2d(channels),
            nn.LeakyReLU(inplace=True),
        )

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """One map of the size of the first."""
        size = maps[0].shape[2:]
        narrow = [
            linear(part.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            for linear, part in zip(self.linears, maps, strict=True)
        ]
        resized = [F.interpolate(part, size, mode="bilinear") for part in narrow]
        fused: Tensor = self.fuse(torch.cat(resized, 1))
        return fused


class Pyramid(nn.Module):
    """An encoder whose maps have these `widths`; `width` is that of its decoders' outputs.

    `rates` are those of DeepLab's holes, in pixels of the last map.
    """

    dense = True

    def __init__(
        self, widths: Sequence[int], channels: int, decoder: Decoder, rates: Sequence[int]
    ) -> None:
        super().__init__()
        self.widths, self.width = tuple(widths), channels
        self._decoder, self._rates = decoder, tuple(rates)

    def decoder(self) -> nn.Module:
        """A new decoder of these maps."""
        match self._decoder:
            case "fedhca2":
                return PyramidDecoder(self.widths, self.width)
            case "deeplabv3":
                return DeepLabV3(self.widths, self.width, self._rates)
            case "deeplabv3plus":
                return DeepLabV3Plus(self.widths, self.width, self._rates)

    def head(self, task: DenseTask) -> nn.Module:
        """A new head on such a decoder."""
        if self._decoder == "fedhca2":
            return task.head(self.width)
        return PlainHead(self.width, task.outputs)


def pyramid_shape(example: Tensor) -> tuple[int, int, int]:
    """Channels, height and width of an image whose quarter is a whole number of pixels."""
    channels, height, width = image_shape(example)
    if height % 4 or width % 4:
        raise UsageError("it needs images whose height and width are multiples of 4")
    return channels, height, width


class ConvPyramid(Pyramid):
    """Stages of two 3x3 convolutions, each half the size of the last; for small machines.

    `weights` names a file of the encoder's parameters (safetensors) to start from.
    """

    measure = staticmethod(pyramid_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        widths: Sizes = (16, 32, 64),
        channels: PositiveInt = 24,
        weights: str = "",
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
        """The maps of a batch, the largest first."""
        maps, found = self.stem(images), []
        for stage in self.stages:
            maps = stage(maps)
            found.append(maps)
        return found


def load_weights(module: nn.Module, path: str) -> None:
    """Parameters from a file, which must have all of the module's; others are left out."""
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
        raise UsageError(f"its weights {path} have no {missing[0]!r}: architectures differ")
