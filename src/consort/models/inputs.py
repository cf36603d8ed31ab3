"""Checks that an example suits an encoder, and reads its size.

All functions take one prepared example and raise `UsageError` if it is of another kind.
"""

from __future__ import annotations

import torch
from torch import Tensor

from consort.errors import UsageError


def number_count(example: Tensor) -> int:
    """The number of values of a floating-point `example`."""
    if not example.is_floating_point():
        raise UsageError("it needs floating-point numbers")
    return example.numel()


def image_shape(example: Tensor) -> tuple[int, int, int]:
    """Channels, height and width of an image `example`."""
    if example.ndim != 3 or not example.is_floating_point():
        raise UsageError("it needs floating-point images, channels x height x width")
    channels, height, width = example.shape
    return channels, height, width


def pair_shape(example: Tensor) -> tuple[int, int, int]:
    """Channels, height and width of each image of a pair `example`."""
    if example.ndim != 4 or len(example) != 2 or not example.is_floating_point():
        raise UsageError("it needs pairs of floating-point images, 2 x channels x height x width")
    return image_shape(example[0])


def token_count(example: Tensor) -> int:
    """The number of token ids of a text `example`, including padding."""
    if example.ndim != 1 or example.dtype not in (torch.int32, torch.int64):
        raise UsageError("it needs texts, as vectors of int32 or int64 token ids")
    return len(example)
