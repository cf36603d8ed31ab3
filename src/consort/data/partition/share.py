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

    A client's examples are lined up by label, in random order within one, and every n-th
    is set aside; so each label is divided in the same proportion as the whole, to within
    one example. Clients with three examples or more have some of each, others only train.
    """
    sizes = np.array([len(part) for part in parts])
    index = np.concatenate(parts)
    client = np.repeat(np.arange(len(parts)), sizes)
    order = np.lexsort((rng.random(len(index)), labels[index], client))
    aside, tested = _set_aside(sizes, validation, test)
    place = np.zeros(len(index), dtype=np.int64)
    held = _every_nth(sizes, aside, rng)
    place[held] = 1 + _every_nth(aside, tested, rng)
    final = np.lexsort((index[order], place, client))
    counts = np.stack([sizes - aside, aside - tested, tested], axis=1)
    pieces = np.split(index[order][final], np.cumsum(counts)[:-1])
    return list(zip(pieces[0::3], pieces[1::3], pieces[2::3], strict=True))


def _set_aside(sizes: Numbers, validation: float, test: float) -> tuple[Numbers, Numbers]:
    """How many of each client's examples do not train, and how many of those test."""
    wanted = np.maximum(np.rint(np.outer(sizes, (validation, test))).astype(np.int64), 1)
    excess = np.maximum(wanted.sum(axis=1) - (sizes - 1), 0)
    wanted[np.arange(len(sizes)), wanted.argmax(axis=1)] -= excess
    wanted[sizes < 3] = 0
    return wanted.sum(axis=1), wanted[:, 1]


def _every_nth(sizes: Numbers, chosen: Numbers, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Marks `chosen` of each run of `sizes` rows, evenly spread from a random start."""
    whole, some = np.repeat(sizes, sizes), np.repeat(chosen, sizes)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    position = np.arange(len(whole)) - starts
    phase = np.repeat(rng.integers(0, np.maximum(sizes, 1)), sizes)
    marked: NDArray[np.bool_] = (position * some + phase) % whole + some >= whole
    return marked
