"""Pathological label skew: every client holds examples of a few classes only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.grouped import NOBODY, grouped
from consort.errors import UsageError


def classes(
    labels: NDArray[np.int64], clients: int, classes_per_client: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Gives every client exactly `classes_per_client` classes.

    A class is divided evenly among the clients that hold it, and all classes are held about
    equally often. With few clients some classes may be held by nobody and are left out.

    Args:
        labels: The class of each example.
        clients: The number of clients.
        classes_per_client: The number of classes of each client.
        rng: The source of randomness.

    Returns:
        For each client the positions of its examples.

    Raises:
        UsageError: If there are too few classes, or too few examples of a class.
    """
    known = np.unique(labels)
    if classes_per_client > len(known):
        raise UsageError(
            f"classes_per_client = {classes_per_client}, but there are {len(known)} classes: "
            f"lower classes_per_client"
        )
    held = _held(len(known), clients, classes_per_client, rng)
    holder = np.full_like(labels, NOBODY)
    for position, label in enumerate(known):
        members = rng.permutation(np.flatnonzero(labels == label))
        holders = np.flatnonzero((held == position).any(axis=1))
        if len(holders) > len(members):
            raise UsageError(
                f"class {label} has {len(members)} examples for {len(holders)} clients: "
                f"lower clients or classes_per_client"
            )
        if len(holders):
            holder[members] = holders[np.arange(len(members)) % len(holders)]
    return grouped(holder, clients)


def _held(
    classes: int, clients: int, classes_per_client: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Assigns to each client the classes with the fewest holders so far, ties broken at random."""
    holders = np.zeros(classes)
    held = np.empty((clients, classes_per_client), dtype=np.int64)
    for row, chance in zip(held, rng.random((clients, classes)), strict=True):
        row[:] = np.argsort(holders + chance)[:classes_per_client]
        holders[row] += 1
    return held
