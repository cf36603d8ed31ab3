"""ViTSigNet: a vision transformer and two fully connected layers on its logits (FedMH, Table 7)."""

from __future__ import annotations

from typing import ClassVar

from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from consort.models.inputs import image_shape
from consort.models.layers import dense, thinned
from consort.models.vit import VisionTransformer


class ViTSigNet(nn.Module):
    """ViTSigNet: ViT-B with patches of 16x16 pixels, its logits, and two fully connected layers.

    Args:
        shape: Channels, height and width of the images.
        scale: The factor for the width of all layers but the last.
        features: The width of the last layer.
        depth: The number of transformer blocks.
    """

    measure = staticmethod(image_shape)
    patch: ClassVar[int] = 16

    def __init__(
        self,
        shape: tuple[int, int, int],
        scale: PositiveFloat = 1.0,
        features: PositiveInt = 2048,
        depth: PositiveInt = 12,
    ) -> None:
        super().__init__()
        logits, hidden = thinned(1000, scale), thinned(6400, scale)
        self.transformer = VisionTransformer(shape, self.patch, scale, depth)
        self.logits = nn.Linear(self.transformer.width, logits)
        self.layers = nn.Sequential(dense(logits, hidden), dense(hidden, features))
        self.width = features

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        features: Tensor = self.layers(self.logits(self.transformer(images)))
        return features


class ViTSigNet32(ViTSigNet):
    """ViTSigNet-32: ViTSigNet with patches of 32x32 pixels."""

    patch = 32
