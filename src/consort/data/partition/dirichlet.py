"""Label skew: each class is divided in proportions drawn from a Dirichlet distribution."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.grouped import grouped
from consort.errors import UsageError

ATTEMPTS = 100
"""How often proportions are drawn before giving up."""


def dirichlet(
    labels: NDArray[np.int64],
    clients: int,
    alpha: float,
    min_examples: int,
    rng: np.random.Generator,
    balanced: bool = False,
) -> list[NDArray[np.int64]]:
    """Distributes all examples, each class in proportions drawn from a Dirichlet distribution.

    Proportions are redrawn, up to 100 times, until every client has `min_examples`.

    Args:
        labels: The class of each example.
        clients: The number of clients.
        alpha: The concentration; the smaller, the fewer clients hold most of a class.
        min_examples: The smallest number of examples of a client.
        rng: The source of randomness.
        balanced: Whether clients that already hold an equal share of all examples get no
            further classes.

    Returns:
        For each client the positions of its examples.

    Raises:
        UsageError: If no draw gives every client `min_examples`.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    draw = _balanced if balanced else _independent
    for _ in range(ATTEMPTS):
        counts = draw(sizes, clients, alpha, rng)
        if counts.sum(axis=0).min() >= min_examples:
            return _assign(labels, classes, counts, rng)
    raise UsageError(
        f"in {ATTEMPTS} draws with alpha = {alpha:g} some of {clients} clients always had fewer "
        f"than min_examples = {min_examples}: raise alpha, or lower min_examples or clients"
    )


def _independent(
    sizes: NDArray[np.int64], clients: int, alpha: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The number of examples of each class (row) that each client (column) gets."""
    shares = rng.dirichlet(np.full(clients, alpha), len(sizes))
    return _whole(shares, sizes[:, None])


def _balanced(
    sizes: NDArray[np.int64], clients: int, alpha: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """The same, where only clients below an equal share of all examples get part of a class.

    Drawing proportions for these clients alone has the same distribution as drawing them for all
    clients, dropping the others and rescaling the rest.
    """
    counts = np.zeros((len(sizes), clients), dtype=np.int64)
    for row, size in zip(counts, sizes, strict=True):
        below = np.flatnonzero(counts.sum(axis=0) < sizes.sum() / clients)
        row[below] = _whole(rng.dirichlet(np.full(len(below), alpha)), size)
    return counts


def _whole(shares: NDArray[np.float64], sizes: NDArray[np.int64] | np.int64) -> NDArray[np.int64]:
    """Integers in these proportions (last axis) that add up to `sizes`."""
    ends = np.rint(np.cumsum(shares, axis=-1) * sizes).astype(np.int64)
    ends[..., -1:] = sizes
    return np.diff(ends, prepend=0, axis=-1)


def _assign(
    labels: NDArray[np.int64],
    classes: NDArray[np.int64],
    counts: NDArray[np.int64],
    rng: np.random.Generator,
) -> list[NDArray[np.int64]]:
    """The examples of each client, given how many it gets of each class."""
    clients = counts.shape[1]
    holder = np.empty_like(labels)
    for label, pieces in zip(classes, counts, strict=True):
        members = rng.permutation(np.flatnonzero(labels == label))
        holder[members] = np.repeat(np.arange(clients), pieces)
    return grouped(holder, clients)
