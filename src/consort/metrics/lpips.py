"""How unlike two pictures look to a network that has learnt to see, weighted as people judge.

Zhang, Isola, Efros, Shechtman and Wang: The Unreasonable Effectiveness of Deep Features as a
Perceptual Metric, CVPR 2018, Equation 1 (LPIPS), with AlexNet. Its weights are a user's files.
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
"""Pixels below which nothing is left for the last layers."""


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
"""Those that see a smaller map than the one before left."""
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of the pictures that AlexNet was trained on, by colour."""
_TINY = 1e-10


@dataclass(frozen=True)
class Lpips:
    """A distance between pictures: 0 for equal ones, the larger the less alike they look."""

    network: Mapping[str, Tensor]
    """AlexNet's convolutions, named as in torchvision."""
    channels: Mapping[str, Tensor]
    """How much each channel of each layer counts, named as in the package `lpips`."""

    @classmethod
    def load(cls, network: Path, channels: Path) -> Self:
        """Reads the two files as they are published; what else they hold is left out."""
        shapes: dict[str, tuple[int, ...]] = {}
        for place, outputs, inputs, kernel, *_ in _ALEXNET:
            shapes[f"features.{place}.weight"] = (outputs, inputs, kernel, kernel)
            shapes[f"features.{place}.bias"] = (outputs,)
        counted = {_channels(n): (1, step.outputs, 1, 1) for n, step in enumerate(_ALEXNET)}
        return cls(_read(network, shapes), _read(channels, counted))

    @torch.inference_mode()
    def __call__(self, one: Tensor, other: Tensor) -> float:
        """Of two pictures (colours, height, width) from 0 to 1; NaN if they are too small."""
        if one.ndim != 3 or min(one.shape[1:]) < SMALLEST_SIDE:
            return math.nan
        layers = zip(self._seen(one), self._seen(other), strict=True)
        return sum(
            (self.channels[_channels(n)] * (left - right).square()).sum(1).mean().item()
            for n, (left, right) in enumerate(layers)
        )

    def _seen(self, picture: Tensor) -> list[Tensor]:
        """What each layer makes of a picture, every place of a map as a vector of length 1."""
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
    """One picture as AlexNet knows them; grey unless it has three colours."""
    colours = picture if len(picture) == 3 else picture.mean(0, keepdim=True).expand(3, -1, -1)
    mean, deviation = (torch.tensor(values)[:, None, None] for values in (_MEAN, _DEVIATION))
    return ((colours.float() - mean) / deviation)[None]


def _channels(layer: int) -> str:
    return f"lin{layer}.model.1.weight"


def _read(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """Tensors of these names and shapes out of a file."""
    try:
        held = torch.load(path, "cpu", weights_only=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # whatever torch and pickle make of bytes that are something else
        raise UsageError(f"{path} is no file of weights that torch has saved") from error
    for name, shape in shapes.items():
        found = held.get(name) if isinstance(held, dict) else None
        if not isinstance(found, Tensor) or found.shape != shape:
            size = "x".join(map(str, shape))
            raise UsageError(
                f"{path} holds no {name} of {size} numbers: LPIPS takes the weights of "
                "torchvision's alexnet, and then alex.pth of the package lpips"
            )
    return {name: held[name].float() for name in shapes}
