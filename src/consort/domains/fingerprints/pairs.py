"""Which two pictures of a finger make a pair."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal, TypeVar

import numpy as np

from consort.domains.fingerprints.dataset import Images, Numbers
from consort.domains.fingerprints.views import second_views
from consort.errors import UsageError

Item = TypeVar("Item")
Pairing = Literal["impressions", "augmented"]
"""Two real impressions (the honest protocol), or one and a varied copy of it (the paper's)."""


def paired(
    name: str, images: Images, fingers: Numbers, pairing: Pairing, most: int, seed: int
) -> tuple[Images, Numbers]:
    """Pairs (N, 2, H, W) and the finger of each; at most so many of a finger, if not 0."""
    groups = [np.flatnonzero(fingers == finger) for finger in np.unique(fingers)]
    if pairing == "augmented":
        first = np.repeat([group[0] for group in groups], most or 1)
        return np.stack([images[first], second_views(images[first], seed)], axis=1), fingers[first]
    rows = [pair for group in groups for pair in spread(list(combinations(group, 2)), most)]
    if not rows:
        raise UsageError(
            f'data set {name!r} has one impression of each finger: set pairs = "augmented"'
        )
    index = np.array(rows)
    return images[index], fingers[index[:, 0]]


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """All of them, or so many, taken evenly."""
    if not most or len(items) <= most:
        return list(items)
    return [items[place * len(items) // most] for place in range(most)]
