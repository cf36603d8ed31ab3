"""Agglomerative clustering with average linkage."""

from __future__ import annotations

from itertools import combinations

from torch import Tensor


def average_linkage(distances: Tensor, count: int) -> list[list[int]]:
    """Merges the two nearest groups, by their mean distance, until `count` are left.

    Of pairs at the same distance, the first is merged.

    Args:
        distances: The distance between every two items.
        count: The number of groups.

    Returns:
        The groups, as lists of positions of items.
    """
    groups = [[place] for place in range(len(distances))]
    while len(groups) > max(count, 1):
        one, other = min(
            combinations(groups, 2), key=lambda pair: float(distances[pair[0]][:, pair[1]].mean())
        )
        groups.remove(other)
        one += other
    return sorted(map(sorted, groups))
