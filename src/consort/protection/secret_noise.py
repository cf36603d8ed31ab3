"""Noise from the operating system's source of secrets, for clients on machines of their own."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SUMMED = 4  # draws of which each number that is returned is the sum
_CHUNK = 1 << 14  # numbers that are drawn at a time, so that they stay in the cache


class Secret:
    """Draws from the operating system: nobody can know, repeat or influence the numbers.

    Normal numbers are made by Box and Muller's method, in double precision. The set of floating
    point numbers that one such draw can give has gaps, from which the number without noise can be
    inferred (Mironov 2012). Therefore each number is the sum of four independent draws, divided by
    2, as Holohan and Braghin (Secure Random Sampling in Differential Privacy, ESORICS 2021) propose
    for distributions that are infinitely divisible: to invert it, all four have to be guessed.
    """

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        """Draws numbers in double precision: see `Randomness.normal`."""
        found = np.empty(math.prod(shape))
        for start in range(0, len(found), _CHUNK):
            part = found[start : start + _CHUNK]
            part[:] = _normal(_SUMMED * len(part)).reshape(_SUMMED, -1).sum(0)
        return torch.from_numpy(found / math.sqrt(_SUMMED)).reshape(tuple(shape))

    def uniform(self, count: int) -> Tensor:
        """Draws `count` numbers in double precision: see `Randomness.uniform`."""
        return torch.from_numpy(_uniform(count))


def _uniform(count: int) -> NDArray[np.float64]:
    """Multiples of 2^-53 below 1, from the operating system."""
    words = np.frombuffer(os.urandom(8 * count), np.uint64)
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _normal(count: int) -> NDArray[np.float64]:
    """Box and Muller's method; `count` is even."""
    radius = np.sqrt(-2.0 * np.log1p(-_uniform(count // 2)))  # 1 - u is never 0
    angle = _uniform(count // 2) * (2.0 * math.pi)
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
