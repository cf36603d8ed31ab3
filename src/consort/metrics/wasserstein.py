"""How far two heaps of points are apart: the earth that must be moved, and how far."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def wasserstein(one: Numbers, other: Numbers) -> Numbers:
    """The earth mover's distance of samples of numbers, column by column.

    It is the area between the two inverse distribution functions, which only change where one of
    the samples has another element.
    """
    shares = [np.arange(1, len(part) + 1) / len(part) for part in (one, other)]
    edges = np.unique(np.concatenate([[0.0], *shares]).round(12))
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    first, second = (
        np.sort(part, axis=0)[(middles * len(part)).astype(np.int64)] for part in (one, other)
    )
    distances: Numbers = widths @ np.abs(first - second)
    return distances


def sliced_wasserstein(one: Numbers, other: Numbers, directions: Numbers) -> float:
    """The mean distance of the shadows of two samples (points, coordinates) along directions."""
    return float(wasserstein(one @ directions.T, other @ directions.T).mean())


def random_directions(count: int, coordinates: int, rng: np.random.Generator) -> Numbers:
    """Vectors of length 1, evenly distributed."""
    drawn = rng.standard_normal((count, coordinates))
    directions: Numbers = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return directions
