"""Groups of things that are near each other."""

from __future__ import annotations

from itertools import combinations

from torch import Tensor


def average_linkage(distances: Tensor, count: int) -> list[list[int]]:
    """So many groups: again and again the two are joined that are nearest on the average.

    Of pairs that are equally near, the first is joined.
    """
    groups = [[place] for place in range(len(distances))]
    while len(groups) > max(count, 1):
        one, other = min(
            combinations(groups, 2), key=lambda pair: float(distances[pair[0]][:, pair[1]].mean())
        )
        groups.remove(other)
        one += other
    return sorted(map(sorted, groups))
