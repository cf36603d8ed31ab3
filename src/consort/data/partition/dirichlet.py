"""Label skew: each class is shared out in proportions drawn from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.grouped import grouped
from consort.errors import UsageError

ATTEMPTS = 100


def dirichlet(
    labels: NDArray[np.int64],
    clients: int,
    alpha: float,
    min_examples: int,
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """All examples; the smaller `alpha`, the fewer clients hold most of a class.

    Proportions are drawn again, up to 100 times, until nobody has less than `min_examples`.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    counts = _counts(sizes, clients, alpha, min_examples, rng)
    holder = np.empty_like(labels)
    for label, pieces in zip(classes, counts, strict=True):
        members = rng.permutation(np.flatnonzero(labels == label))
        holder[members] = np.repeat(np.arange(clients), pieces)
    return grouped(holder, clients)


def _counts(
    sizes: NDArray[np.int64],
    clients: int,
    alpha: float,
    min_examples: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """How many examples of each class (row) each client (column) gets."""
    for _ in range(ATTEMPTS):
        shares = rng.dirichlet(np.full(clients, alpha), len(sizes))
        ends = np.rint(np.cumsum(shares, axis=1) * sizes[:, None]).astype(np.int64)
        ends[:, -1] = sizes
        counts = np.diff(ends, prepend=0, axis=1)
        if counts.sum(axis=0).min() >= min_examples:
            return counts
    raise UsageError(
        f"in {ATTEMPTS} draws with alpha = {alpha:g} some of {clients} clients always had fewer "
        f"than min_examples = {min_examples}: raise alpha, or lower min_examples or clients"
    )
