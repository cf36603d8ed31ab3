"""Entropy and mutual information as papers report them; neither is a guarantee of anything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
LEVELS, BINS, GRID = 256, 32, 8
MOST_COORDINATES = 16
"""Of an embedding; more say the same and take longer."""


def entropy(values: Numbers, bounds: tuple[float, float] | None = None) -> float:
    """Bits in a histogram of all values with 256 bins: 0 if they are all alike, at most 8."""
    counts, _ = np.histogram(values, LEVELS, bounds)
    return _bits(counts)


def mutual_information(pictures: Numbers, embeddings: Numbers, rng: np.random.Generator) -> float:
    """Bits that a coordinate of an embedding tells of a field of its picture, on average.

    Pictures (n, height, width) are pooled to a grid of 8x8 fields, and counted in 32x32 bins. So
    few examples seem to tell something in any case: what shuffled ones seem to tell is taken away.
    """
    fields = _binned(pooled(pictures))
    codes = _binned(embeddings[:, :MOST_COORDINATES])
    shuffled = codes[rng.permutation(len(codes))]
    return _shared(fields, codes) - _shared(fields, shuffled)


def pooled(pictures: Numbers) -> Numbers:
    """The means of a grid of fields, one row for each picture; small pictures as they are."""
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
    """The bin of every value, from the lowest to the highest of its column."""
    low, span = values.min(0), np.ptp(values, axis=0)
    shares = (values - low) / np.where(span > 0, span, 1.0)
    bins: NDArray[np.int64] = np.minimum((shares * BINS).astype(np.int64), BINS - 1)
    return bins


def _shared(fields: NDArray[np.int64], codes: NDArray[np.int64]) -> float:
    """Mean over all pairs of columns of H(field) + H(code) - H(both)."""
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
