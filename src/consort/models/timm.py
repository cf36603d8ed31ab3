"""Image models of `timm` as encoders."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from consort.core.bounds import LocalFile
from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.models.inputs import image_shape
from consort.models.offline import offline

_PLACES = (
    "pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir",
)  # fmt: skip
"""Options of `timm.create_model` that name what is loaded."""


class Timm(nn.Module):
    """A model of `timm` without head; nothing is ever downloaded.

    Args:
        example: One prepared image.
        architecture: The name of the model, such as `resnet18`.
        weights: A .safetensors file with the initial weights.
        **options: Options of the model, as for `timm.create_model`, such as `drop_rate`.

    Raises:
        UsageError: If `timm` is not installed, or there is no such model or option.
    """

    def __init__(
        self, example: Tensor, architecture: str, weights: LocalFile = "", **options: Any
    ) -> None:
        super().__init__()
        channels, *_ = image_shape(example)
        for key in _PLACES:
            if options.pop(key, None):
                raise UsageError(
                    f"{key} would download weights, or read any file: give a local .safetensors "
                    "file as weights"
                )
        try:
            timm = importlib.import_module("timm")
        except Exception as error:  # beside another torch, its packages raise almost anything
            raise UsageError(
                "timm cannot be imported: install it with `pip install 'fedconsort[timm]'` "
                f"({error})"
            ) from error
        if not timm.is_model(architecture):
            known = timm.list_models()
            nearest = did_you_mean(architecture, known).partition(" (there are")[0]
            raise UsageError(f"timm has no model {nearest}")
        try:
            with offline():
                made = timm.create_model(architecture, num_classes=0, in_chans=channels, **options)
        except (RuntimeError, TypeError, ValueError) as error:
            raise UsageError(f"timm cannot make {architecture!r}: {error}") from error
        self.network: nn.Module = made
        if weights:
            load_weights(made, Path(weights))
        self.network.eval()
        with torch.no_grad():
            self.width = self(example[None]).shape[1]
        self.network.train()

    def forward(self, images: Tensor) -> Tensor:
        """The features of a batch of `images`."""
        features: Tensor = self.network(images)
        return features


def load_weights(network: nn.Module, path: Path) -> None:
    """Loads weights from a file that has them under the names of a network.

    Args:
        network: The network, which is changed.
        path: A .safetensors file; what the network has no use for, such as a head, is left out.

    Raises:
        UsageError: If the file cannot be read, or lacks a tensor.
    """
    if path.suffix != ".safetensors":
        raise UsageError(f"{path}: weights are read from a .safetensors file")
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    wanted = network.state_dict()
    for name, tensor in wanted.items():
        if name not in found or found[name].shape != tensor.shape:
            raise UsageError(f"{path} has no weights {name} of shape {tuple(tensor.shape)}")
    network.load_state_dict({name: found[name] for name in wanted})
