"""Entropy and mutual information as papers report them; neither is a privacy guarantee."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
LEVELS, BINS, GRID = 256, 32, 8
MOST_COORDINATES = 16
"""The largest number of coordinates of an embedding that are used; more only take longer."""


def entropy(values: Numbers, bounds: tuple[float, float] | None = None) -> float:
    """The entropy of a histogram of all values with 256 bins.

    Args:
        values: The values.
        bounds: The range of the histogram; that of the values if not given.

    Returns:
        Bits, from 0 (all values in one bin) to 8.
    """
    counts, _ = np.histogram(values, LEVELS, bounds)
    return _bits(counts)


def mutual_information(pictures: Numbers, embeddings: Numbers, rng: np.random.Generator) -> float:
    """The mean mutual information between a coordinate of an embedding and a cell of its image.

    Images are pooled to a grid of 8x8 cells, and values are counted in 32x32 bins. With few
    examples such an estimate is too high; therefore that of shuffled examples is subtracted.

    Args:
        pictures: Images (n, height, width).
        embeddings: One row per image.
        rng: Shuffles the examples.

    Returns:
        Bits.
    """
    fields = _binned(pooled(pictures))
    codes = _binned(embeddings[:, :MOST_COORDINATES])
    shuffled = codes[rng.permutation(len(codes))]
    return _shared(fields, codes) - _shared(fields, shuffled)


def pooled(pictures: Numbers) -> Numbers:
    """Images pooled to a grid of 8x8 means, one row per image; smaller images are not pooled."""
    rows, columns = (
        np.array_split(np.arange(side), min(GRID, side)) for side in pictures.shape[1:]
    )
    return np.stack(
        [
            pictures[:, r[0] : r[-1] + 1, c[0] : c[-1] + 1].mean((1, 2))
            for r in rows
            for c in columns
        ],
        axis=1,
    )


def _binned(values: Numbers) -> NDArray[np.int64]:
    """The bin of every value; bins divide the range of each column."""
    low, span = values.min(0), np.ptp(values, axis=0)
    shares = (values - low) / np.where(span > 0, span, 1.0)
    bins: NDArray[np.int64] = np.minimum((shares * BINS).astype(np.int64), BINS - 1)
    return bins


def _shared(fields: NDArray[np.int64], codes: NDArray[np.int64]) -> float:
    """The mean of H(field) + H(code) - H(field, code) over all pairs of columns."""
    found = []
    for field in fields.T:
        for code in codes.T:
            joint = np.bincount(field * BINS + code, minlength=BINS**2)
            square = joint.reshape(BINS, BINS)
            found.append(_bits(square.sum(1)) + _bits(square.sum(0)) - _bits(joint))
    return float(np.mean(found))


def _bits(counts: NDArray[np.int64]) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log2(shares)).sum()) + 0.0
