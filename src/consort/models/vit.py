"""The vision transformer ViT-B (Dosovitskiy et al. 2021), built by `transformers`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from torch import Tensor, nn

from consort.models.layers import padded, thinned

HEAD = 64
"""The width of one attention head."""


class VisionTransformer(nn.Module):
    """A vision transformer whose features are the class token after the last block.

    Images are padded with zeros to a whole number of patches.

    Args:
        shape: Channels, height and width of the images.
        patch: The width of a patch in pixels.
        scale: The factor for the number of attention heads (12 at scale 1), each of width 64.
        depth: The number of blocks.
    """

    def __init__(self, shape: Sequence[int], patch: int, scale: float, depth: int) -> None:
        super().__init__()
        channels, *sides = shape
        heads = thinned(12, scale)
        transformers = importlib.import_module("transformers")
        config = transformers.ViTConfig(
            image_size=[-(-side // patch) * patch for side in sides],
            patch_size=patch,
            num_channels=channels,
            hidden_size=heads * HEAD,
            intermediate_size=4 * heads * HEAD,
            num_attention_heads=heads,
            num_hidden_layers=depth,
            layer_norm_eps=1e-6,
        )
        self.network = transformers.ViTModel(config, add_pooling_layer=False)
        self.patch = patch
        self.width = heads * HEAD

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        features: Tensor = self.network(padded(images, self.patch)).last_hidden_state[:, 0]
        return features
