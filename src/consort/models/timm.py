"""Image models of `timm` as encoders."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

from consort.errors import UsageError
from consort.models.inputs import image_shape


class Timm(nn.Module):
    """A model of `timm` without head; nothing is ever downloaded.

    Args:
        example: One prepared image.
        architecture: The name of the model, such as `resnet18`.
        **options: Options of `timm.create_model`, such as the `checkpoint_path` of a local file.

    Raises:
        UsageError: If `timm` is not installed, or there is no such model or option.
    """

    def __init__(self, example: Tensor, architecture: str, **options: Any) -> None:
        super().__init__()
        channels, *_ = image_shape(example)
        if options.get("pretrained"):
            raise UsageError(
                "pretrained = true would download weights: give a local file as checkpoint_path"
            )
        try:
            timm = importlib.import_module("timm")
        except Exception as error:  # beside another torch, its packages raise almost anything
            raise UsageError(
                "timm cannot be imported: install it with `pip install 'fedconsort[timm]'` "
                f"({error})"
            ) from error
        try:
            made = timm.create_model(architecture, num_classes=0, in_chans=channels, **options)
        except (RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"timm cannot make {architecture!r}: {error}") from error
        self.network: nn.Module = made
        self.network.eval()
        with torch.no_grad():
            self.width = self(example[None]).shape[1]
        self.network.train()

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        features: Tensor = self.network(images)
        return features
