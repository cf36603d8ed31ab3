"""Wasserstein (earth mover's) distances between two samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def wasserstein(one: Numbers, other: Numbers) -> Numbers:
    """The 1-Wasserstein distance between two samples of numbers, separately for each column.

    It is the area between the two quantile functions, which are constant between the sample
    quantiles of either sample.

    Args:
        one: A sample, points x columns.
        other: A sample with as many columns and any number of points.

    Returns:
        One distance per column.
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
    """The mean Wasserstein distance of two samples projected onto directions.

    Args:
        one: A sample, points x coordinates.
        other: A sample with as many coordinates.
        directions: Unit vectors to project on, directions x coordinates.

    Returns:
        The mean over the directions.
    """
    return float(wasserstein(one @ directions.T, other @ directions.T).mean())


def random_directions(count: int, coordinates: int, rng: np.random.Generator) -> Numbers:
    """Draws unit vectors that are uniformly distributed on the sphere.

    Args:
        count: The number of vectors.
        coordinates: Their dimension.
        rng: The source of randomness.

    Returns:
        Vectors of length 1, count x coordinates.
    """
    drawn = rng.standard_normal((count, coordinates))
    directions: Numbers = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return directions
