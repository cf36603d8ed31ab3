"""LPIPS: a perceptual distance between two images, computed from the features of AlexNet.

Zhang, Isola, Efros, Shechtman and Wang: The Unreasonable Effectiveness of Deep Features as a
Perceptual Metric, CVPR 2018, Equation 1. The user provides the files with the weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.errors import UsageError

SMALLEST_SIDE = 31
"""In smaller images the feature maps of the last layers would be empty."""


class _Convolution(NamedTuple):
    place: int
    outputs: int
    inputs: int
    kernel: int
    stride: int = 1
    padding: int = 1


_ALEXNET = (
    _Convolution(0, 64, 3, 11, 4, 2),
    _Convolution(3, 192, 64, 5, 1, 2),
    _Convolution(6, 384, 192, 3),
    _Convolution(8, 256, 384, 3),
    _Convolution(10, 256, 256, 3),
)
_POOLED = (3, 6)
"""The convolutions that follow a max-pooling layer."""
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of AlexNet's training images, per colour channel."""
_TINY = 1e-10


@dataclass(frozen=True)
class Lpips:
    """The LPIPS distance: 0 for equal images, larger the more different they look."""

    network: Mapping[str, Tensor]
    """The weights and biases of AlexNet's convolutions, named as in torchvision."""
    channels: Mapping[str, Tensor]
    """The weight of each channel of each layer, named as in the package `lpips`."""

    @classmethod
    def load(cls, network: Path, channels: Path) -> Self:
        """Reads the two files of weights as published; other entries in them are ignored.

        Args:
            network: torchvision's `alexnet` checkpoint.
            channels: `alex.pth` of the package `lpips`.

        Returns:
            The distance with these weights.

        Raises:
            UsageError: If a file cannot be read, or a tensor is missing or has another shape.
        """
        shapes: dict[str, tuple[int, ...]] = {}
        for place, outputs, inputs, kernel, *_ in _ALEXNET:
            shapes[f"features.{place}.weight"] = (outputs, inputs, kernel, kernel)
            shapes[f"features.{place}.bias"] = (outputs,)
        counted = {_channels(n): (1, step.outputs, 1, 1) for n, step in enumerate(_ALEXNET)}
        return cls(_read(network, shapes), _read(channels, counted))

    @torch.inference_mode()
    def __call__(self, one: Tensor, other: Tensor) -> float:
        """The distance between two images.

        Args:
            one: Channels x height x width, with values from 0 to 1.
            other: An image of the same shape.

        Returns:
            The distance; NaN if the images are smaller than `SMALLEST_SIDE`.
        """
        if one.ndim != 3 or min(one.shape[1:]) < SMALLEST_SIDE:
            return math.nan
        layers = zip(self._features(one), self._features(other), strict=True)
        return sum(
            (self.channels[_channels(n)] * (left - right).square()).sum(1).mean().item()
            for n, (left, right) in enumerate(layers)
        )

    def _features(self, picture: Tensor) -> list[Tensor]:
        """The feature maps of each layer, with the channels at each pixel scaled to length 1."""
        maps = _normalised(picture)
        found = []
        for step in _ALEXNET:
            if step.place in _POOLED:
                maps = F.max_pool2d(maps, 3, 2)
            name = f"features.{step.place}"
            weight, bias = self.network[f"{name}.weight"], self.network[f"{name}.bias"]
            maps = F.conv2d(maps, weight, bias, step.stride, step.padding).relu()
            found.append(maps / (maps.norm(dim=1, keepdim=True) + _TINY))
        return found


def _normalised(picture: Tensor) -> Tensor:
    """A normalised batch of one image; averaged to grey unless it has three channels."""
    colours = picture if len(picture) == 3 else picture.mean(0, keepdim=True).expand(3, -1, -1)
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (_MEAN, _DEVIATION))
    return ((colours.float() - mean) / deviation)[None]


def _channels(layer: int) -> str:
    return f"lin{layer}.model.1.weight"


def _read(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Reads the tensors of these names from a file and checks their shapes."""
    try:
        held = torch.load(path, "cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # torch and pickle raise almost anything for other files
        raise UsageError(f"{path} is not a file of weights saved by torch") from error
    for name, shape in shapes.items():
        found = held.get(name) if isinstance(held, dict) else None
        if not isinstance(found, Tensor) or found.shape != shape:
            size = "x".join(map(str, shape))
            raise UsageError(
                f"{path} has no tensor {name} of shape {size}: LPIPS takes the weights of "
                "torchvision's alexnet, and then alex.pth of the package lpips"
            )
    return {name: held[name].float() for name in shapes}
