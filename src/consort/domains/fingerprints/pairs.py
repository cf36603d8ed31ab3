"""Forming pairs of images of the same finger."""

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
"""Pairs of two real impressions, or of one and an augmented copy (as in AFFR's paper)."""


def paired(
    name: str, images: Images, fingers: Numbers, pairing: Pairing, most: int, seed: int
) -> tuple[Images, Numbers]:
    """Forms pairs of images of the same finger.

    Args:
        name: The data set, for the error message.
        images: Images x height x width.
        fingers: The finger of each image.
        pairing: What a pair is made of.
        most: The largest number of pairs of one finger; 0 for all (one, if augmented).
        seed: The seed of augmented copies.

    Returns:
        The pairs, pairs x 2 x height x width, and the finger of each.

    Raises:
        UsageError: If there is only one impression of each finger.
    """
    groups = [np.flatnonzero(fingers == finger) for finger in np.unique(fingers)]
    if pairing == "augmented":
        first = np.repeat([group[0] for group in groups], most or 1)
        return np.stack([images[first], second_views(images[first], seed)], axis=1), fingers[first]
    rows = [pair for group in groups for pair in spread(list(combinations(group, 2)), most)]
    if not rows:
        raise UsageError(
            f'data set {name!r} has only one impression of each finger: set pairs = "augmented"'
        )
    index = np.array(rows)
    return images[index], fingers[index[:, 0]]


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """Chooses evenly spaced items.

    Args:
        items: All items.
        most: The largest number of items to return; 0 for all.

    Returns:
        The chosen items, in order.
    """
    if not most or len(items) <= most:
        return list(items)
    return [items[place * len(items) // most] for place in range(most)]
