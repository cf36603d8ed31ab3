"""Published backbones that return feature maps, built by `transformers`."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Literal

from pydantic import PositiveInt
from torch import Tensor, nn

from consort.core.bounds import LocalFile
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

    Args:
        shape: Channels, height and width of the images.
        depths: The number of blocks of each stage.
        widths: The number of channels of each stage, at least 8.
        stem: The number of channels before the first stage, at least 8.
        layers: The kind of blocks.
        channels: The number of channels of the decoders.
        weights: A safetensors file of initial parameters of the encoder; none if empty.
        decoder: The kind of decoder.
        rates: The dilation rates of DeepLab's decoders, in pixels of the last feature map.
        stride: The largest stride of a feature map; later strides are replaced by dilation, as in
            DeepLab.

    Raises:
        UsageError: If the options do not fit each other or the images.
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
        weights: LocalFile = "",
        decoder: Decoder = "fedhca2",
        rates: Sizes = RATES,
        stride: Literal[8, 16, 32] = 32,
    ) -> None:
        super().__init__(widths, channels, decoder, rates)
        check_stages(shape, depths, widths)
        if min(stem, *widths) < 8:  # oneDNN 3.12 writes out of bounds on some processors
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
        replace_strides_by_dilation(self.network.encoder.stages[stride.bit_length() - 2 :])
        load_weights(self.network, weights)

    def forward(self, images: Tensor) -> list[Tensor]:
        """The feature maps of a batch of `images`, the largest first."""
        return list(self.network(images, output_hidden_states=True).hidden_states[1:])


class SwinPyramid(Pyramid):
    """Swin-T, or one of other sizes; every stage has twice the width of the previous one.

    Args:
        shape: Channels, height and width of the images.
        embedding: The width of the first stage.
        depths: The number of blocks of each stage.
        heads: The number of attention heads of each stage.
        window: The side of the attention windows, in patches.
        channels: The number of channels of the decoders.
        weights: A safetensors file of initial parameters of the encoder; none if empty.
        decoder: The kind of decoder.
        rates: The dilation rates of DeepLab's decoders, in pixels of the last feature map.

    Raises:
        UsageError: If the options do not fit each other or the images.
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
        weights: LocalFile = "",
        decoder: Decoder = "fedhca2",
        rates: Sizes = RATES,
    ) -> None:
        widths = [embedding * 2**stage for stage in range(len(depths))]
        super().__init__(widths, channels, decoder, rates)
        check_stages(shape, depths, heads)
        if any(width % number for width, number in zip(widths, heads, strict=True)):
            raise UsageError("the width of every stage must be a multiple of its number of 'heads'")
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
        self.network.swin.layernorm = nn.Identity()  # the backbone normalises its last map itself
        load_weights(self.network, weights)

    def forward(self, images: Tensor) -> list[Tensor]:
        """The feature maps of a batch of `images`, the largest first."""
        return list(self.network(images).feature_maps)


def replace_strides_by_dilation(stages: Iterable[nn.Module]) -> None:
    """Replaces the strides of `stages` by dilation, in place.

    The outputs at every second (fourth, …) pixel stay the same.
    """
    rate = 1
    for stage in stages:
        for layer in (part for part in stage.modules() if isinstance(part, nn.Conv2d)):
            if layer.kernel_size != (1, 1):  # not a 1x1 shortcut
                layer.padding = layer.dilation = (rate, rate)
                rate *= layer.stride[0]
            layer.stride = (1, 1)


def check_stages(
    shape: tuple[int, int, int], depths: tuple[int, ...], others: tuple[int, ...]
) -> None:
    """Checks the options of a backbone.

    Args:
        shape: Channels, height and width of the images.
        depths: The number of blocks of each stage.
        others: Another option with one number per stage.

    Raises:
        UsageError: If the two differ in length, or the images are too small for the stages.
    """
    if len(depths) != len(others):
        raise UsageError("its options with several numbers must have one number per stage")
    smallest = 2 ** (len(depths) + 1)
    if max(shape[1:]) <= smallest:
        raise UsageError(f"it needs images larger than {smallest}x{smallest} pixels")
