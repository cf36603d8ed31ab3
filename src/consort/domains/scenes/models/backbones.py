"""Published encoders that make maps, built by `transformers` from their sizes."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Literal

from pydantic import PositiveInt
from torch import Tensor, nn

from consort.domains.scenes.models.pyramid import (
    RATES,
    Decoder,
    Pyramid,
    Sizes,
    load_weights,
    pyramid_shape,
)
from consort.errors import UsageError


class ResNetPyramid(Pyramid):
    """ResNet-18, or with `layers = "bottleneck"` and other `depths` and `widths` ResNet-50 or 101.

    `weights` names a file of the encoder's parameters (safetensors) to start from. No map is
    smaller than the image by more than `stride`: holes make up for later strides, as in DeepLab.
    """

    measure = staticmethod(pyramid_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        depths: Sizes = (2, 2, 2, 2),
        widths: Sizes = (64, 128, 256, 512),
        stem: PositiveInt = 64,
        layers: Literal["basic", "bottleneck"] = "basic",
        channels: PositiveInt = 96,
        weights: str = "",
        decoder: Decoder = "fedhca2",
        rates: Sizes = RATES,
        stride: Literal[8, 16, 32] = 32,
    ) -> None:
        super().__init__(widths, channels, decoder, rates)
        check_stages(shape, depths, widths)
        if min(stem, *widths) < 8:  # oneDNN 3.12 writes beyond its memory on some processors
            raise UsageError("its 'stem' and 'widths' must be 8 or more")
        transformers = importlib.import_module("transformers")
        config = transformers.ResNetConfig(
            num_channels=shape[0],
            embedding_size=stem,
            hidden_sizes=list(widths),
            depths=list(depths),
            layer_type=layers,
        )
        self.network = transformers.ResNetModel(config)
        see_through_holes(self.network.encoder.stages[stride.bit_length() - 2 :])
        load_weights(self.network, weights)

    def forward(self, images: Tensor) -> list[Tensor]:
        """The maps of a batch, the largest first."""
        return list(self.network(images, output_hidden_states=True).hidden_states[1:])


class SwinPyramid(Pyramid):
    """Swin-T, or one of other sizes; every stage has twice the width of the last.

    `weights` names a file of the encoder's parameters (safetensors) to start from.
    """

    measure = staticmethod(pyramid_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        embedding: PositiveInt = 96,
        depths: Sizes = (2, 2, 6, 2),
        heads: Sizes = (3, 6, 12, 24),
        window: PositiveInt = 7,
        channels: PositiveInt = 96,
        weights: str = "",
        decoder: Decoder = "fedhca2",
        rates: Sizes = RATES,
    ) -> None:
        widths = [embedding * 2**stage for stage in range(len(depths))]
        super().__init__(widths, channels, decoder, rates)
        check_stages(shape, depths, heads)
        if any(width % number for width, number in zip(widths, heads, strict=True)):
            raise UsageError("its widths must be multiples of its 'heads', stage by stage")
        transformers = importlib.import_module("transformers")
        config = transformers.SwinConfig(
            image_size=tuple(shape[1:]),
            patch_size=4,
            num_channels=shape[0],
            embed_dim=embedding,
            depths=list(depths),
            num_heads=list(heads),
            window_size=window,
            out_features=[f"stage{number + 1}" for number in range(len(depths))],
        )
        self.network = transformers.SwinBackbone(config)
        self.network.swin.layernorm = nn.Identity()  # of the last map, which has its own
        load_weights(self.network, weights)

    def forward(self, images: Tensor) -> list[Tensor]:
        """The maps of a batch, the largest first."""
        return list(self.network(images).feature_maps)


def see_through_holes(stages: Iterable[nn.Module]) -> None:
    """Takes the strides out of some stages; holes make up for them.

    What they find at every second (fourth, …) pixel is what they found before.
    """
    rate = 1
    for stage in stages:
        for layer in (part for part in stage.modules() if isinstance(part, nn.Conv2d)):
            if layer.kernel_size != (1, 1):  # shortcuts go beside, and see no neighbours
                layer.padding = layer.dilation = (rate, rate)
                rate *= layer.stride[0]
            layer.stride = (1, 1)


def check_stages(
    shape: tuple[int, int, int], depths: tuple[int, ...], others: tuple[int, ...]
) -> None:
    """Refuses lists of unequal lengths, and images that vanish on their way."""
    if len(depths) != len(others):
        raise UsageError("its lists of numbers must have one for every stage")
    smallest = 2 ** (len(depths) + 1)
    if max(shape[1:]) <= smallest:
        raise UsageError(f"it needs images larger than {smallest}x{smallest} pixels")
