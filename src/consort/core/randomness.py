"""Random generators that are derived from what they are used for, so that none has to be saved."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor


def derive(seed: int, *purpose: str | int) -> int:
    """Derives a seed for one purpose.

    Args:
        seed: The seed of the run.
        *purpose: What the seed is for, such as a round, a client and a method.
    """
    text = "\x1f".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def generator_for(seed: int, *purpose: str | int) -> Generator:
    """Makes a new random generator for one purpose.

    Args:
        seed: The seed of the run.
        *purpose: What the generator is for, such as a round, a client and a method.
    """
    return Generator().manual_seed(derive(seed, *purpose))


class Randomness(Protocol):
    """A source of the random numbers on which a guarantee rests."""

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Draws numbers of the standard normal distribution.

        Args:
            shape: The shape of the tensor.
            dtype: The type of the numbers to which they are added; they may be more precise.
        """
        ...

    def uniform(self, count: int) -> Tensor:
        """Draws `count` numbers that are uniform between 0 and 1, without 1."""
        ...


@dataclass(frozen=True)
class Seeded:
    """Draws from a generator: whoever knows its seed knows the numbers. For simulations."""

    generator: Generator
    """The generator."""

    def normal(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Draws numbers of the type `dtype`: see `Randomness.normal`."""
        return torch.randn(tuple(shape), generator=self.generator, dtype=dtype)

    def uniform(self, count: int) -> Tensor:
        """Draws `count` numbers: see `Randomness.uniform`."""
        return torch.rand(count, generator=self.generator)
