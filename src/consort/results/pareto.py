"""Which of several results no other one beats in both cost and score."""

from __future__ import annotations

import math
from collections.abc import Sequence


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The Pareto front of costs and scores.

    Args:
        points: A cost, of which less is better, and a score, of which more is better.

    Returns:
        The positions of the points for which no other is at least as good in both and better in
        one, cheapest first; of equal points the first. Points that are not finite are left out.
    """
    known = [n for n, point in enumerate(points) if all(map(math.isfinite, point))]
    found: list[int] = []
    best = -math.inf
    for number in sorted(known, key=lambda n: (points[n][0], -points[n][1], n)):
        if points[number][1] > best:
            found.append(number)
            best = points[number][1]
    return found
