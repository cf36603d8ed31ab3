"""Randomness as a function of what it is for, so that no generator has to be saved."""

from __future__ import annotations

import hashlib

from torch import Generator


def derive(seed: int, *purpose: str | int) -> int:
    """A seed of its own for a purpose such as (round, client, method)."""
    text = "\x1f".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big")


def generator_for(seed: int, *purpose: str | int) -> Generator:
    """A new generator for a purpose."""
    return Generator().manual_seed(derive(seed, *purpose))
