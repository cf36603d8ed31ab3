"""Residual networks of basic blocks (ResNet-18 and smaller), built by `transformers`."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from consort.errors import UsageError
from consort.models.inputs import image_shape

Sizes = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class ResNet(nn.Module):
    """ResNet-18, or one with other `depths` and `widths`; `stem = "small"` is for small images.

    The full stem (7x7 convolution and pooling) reduces the resolution by four, the small one
    (3x3 convolution) keeps it; every stage after the first halves it.

    Args:
        shape: Channels, height and width of the images.
        depths: The number of blocks of each stage.
        widths: The number of channels of each stage.
        stem: The layers before the first stage.

    Raises:
        UsageError: If `depths` and `widths` differ in length, or the images are too small.
    """

    measure = staticmethod(image_shape)

    def __init__(
        self,
        shape: tuple[int, int, int],
        depths: Sizes = (2, 2, 2, 2),
        widths: Sizes = (64, 128, 256, 512),
        stem: Literal["full", "small"] = "full",
    ) -> None:
        super().__init__()
        if len(depths) != len(widths):
            raise UsageError("its options 'depths' and 'widths' must have one number per stage")
        shrinkage = 2 ** (len(depths) - 1) * (4 if stem == "full" else 1)
        if max(shape[1:]) <= shrinkage:
            # BatchNorm cannot train on a batch of one example with one pixel.
            raise UsageError(
                f"it needs images larger than {shrinkage}x{shrinkage} pixels; "
                "take stem = 'small' or fewer 'depths' and 'widths'"
            )
        network = _full_network(shape[0], depths, widths)
        if stem == "small":
            _shrink_stem(network.embedder, shape[0], widths[0])
        self.network = network
        self.width = widths[-1]

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        features: Tensor = self.network(images).pooler_output.flatten(1)
        return features


def _full_network(channels: int, depths: tuple[int, ...], widths: tuple[int, ...]) -> Any:
    transformers = importlib.import_module("transformers")
    config = transformers.ResNetConfig(
        num_channels=channels,
        embedding_size=widths[0],
        hidden_sizes=list(widths),
        depths=list(depths),
        layer_type="basic",
    )
    return transformers.ResNetModel(config)


def _shrink_stem(stem: Any, channels: int, width: int) -> None:
    convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    stem.embedder.convolution = convolution
    stem.pooler = nn.Identity()
