"""What one client gets of a data set, and how that is divided again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Share:
    """One client's examples by their positions in the data set, and the tasks it learns."""

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
    """Training, validation and test examples of every client, in ascending order.

    Each of a client's labels is divided in the same proportions as the whole, to within one
    example. Clients with three examples or more have some of each, others only train.
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
    """How many of each client's examples train, validate and test (columns)."""
    aside = np.maximum(np.rint(np.outer(sizes, (validation, test))).astype(np.int64), 1)
    excess = np.maximum(aside.sum(axis=1) - (sizes - 1), 0)
    aside[np.arange(len(sizes)), aside.argmax(axis=1)] -= excess
    aside[sizes < 3] = 0
    return np.column_stack([sizes - aside.sum(axis=1), aside])


def _by_label(
    client: Numbers, labels: Numbers, wanted: Numbers, rng: np.random.Generator
) -> Numbers:
    """How many of each run of one client's examples of one label train, validate and test.

    Exact proportions are rounded down. Of what is missing in a column, each run gets at most
    one; those that miss most come first, so that no run is left with two for the last column.
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
