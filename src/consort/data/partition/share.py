"""The examples of one client, and their division into training, validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Share:
    """One client's examples, as positions in the data set, and the tasks it learns."""

    train: Numbers
    validation: Numbers
    test: Numbers
    tasks: tuple[str, ...]


def divide(
    parts: Sequence[Numbers],
    labels: Numbers,
    validation: float,
    test: float,
    rng: np.random.Generator,
) -> list[tuple[Numbers, Numbers, Numbers]]:
    """Divides the examples of each client into training, validation and test.

    Each label of a client is divided in the same proportions as all its examples, to within one
    example. Clients with at least three examples have some in each split; others only train.

    Args:
        parts: For each client the positions of its examples.
        labels: The label of each example of the data set, by which splits are stratified.
        validation: The share held out for validation.
        test: The share held out for testing.
        rng: The source of randomness.

    Returns:
        For each client the training, validation and test positions, in ascending order.
    """
    sizes = np.array([len(part) for part in parts])
    client = np.repeat(np.arange(len(parts)), sizes)
    index = np.concatenate(parts)
    index = index[np.lexsort((rng.random(len(index)), labels[index], client))]
    wanted = _wanted(sizes, validation, test)
    counts = _by_label(client, labels[index], wanted, rng)
    place = np.repeat(np.arange(counts.size) % 3, counts.ravel())
    order = np.lexsort((index, place, client))
    pieces = np.split(index[order], np.cumsum(wanted)[:-1])
    return list(zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=True))


def _wanted(sizes: Numbers, validation: float, test: float) -> Numbers:
    """The sizes of each client's training, validation and test split (columns)."""
    aside = np.maximum(np.rint(np.outer(sizes, (validation, test))).astype(np.int64), 1)
    excess = np.maximum(aside.sum(axis=1) - (sizes - 1), 0)
    aside[np.arange(len(sizes)), aside.argmax(axis=1)] -= excess
    aside[sizes < 3] = 0
    return np.column_stack([sizes - aside.sum(axis=1), aside])


def _by_label(
    client: Numbers, labels: Numbers, wanted: Numbers, rng: np.random.Generator
) -> Numbers:
    """The split sizes for each run of examples with the same client and label.

    Exact proportions are rounded down. The remainder of a column is given to runs one by one;
    runs that lack most come first, so that no run has two left for the last column.
    """
    starts = np.flatnonzero(np.diff(client, prepend=-1) | np.diff(labels, prepend=-1))
    sizes, owner = np.diff(starts, append=len(client)), client[starts]
    counts: Numbers = sizes[:, None] * wanted[owner] // wanted[owner].sum(axis=1, keepdims=True)
    firsts = np.flatnonzero(np.diff(owner, prepend=-1))
    missing = wanted - np.add.reduceat(counts, firsts)
    for column in (0, 1):
        lacks = sizes - counts.sum(axis=1)
        order = np.lexsort((rng.random(len(sizes)), -lacks, owner))
        rank = np.arange(len(sizes)) - firsts[owner]
        counts[order[rank < missing[owner, column]], column] += 1
    counts[:, 2] = sizes - counts[:, :2].sum(axis=1)
    return counts
