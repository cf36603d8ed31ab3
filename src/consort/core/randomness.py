"""Random generators that are derived from what they are used for, so that none has to be saved."""

from __future__ import annotations

import hashlib

from torch import Generator


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
