"""Measures of heterogeneity: label skew and size skew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import fsum
from statistics import fmean


def label_distance(clients: Sequence[Mapping[str, int]]) -> float:
    """The mean total variation distance of the clients' label distributions from that of all data.

    Args:
        clients: The number of examples of every class, for each client.

    Returns:
        0 if all clients have the same distribution, near 1 if each has few of many classes.
    """
    everyone: Counter[str] = Counter()
    for labels in clients:
        everyone.update(labels)
    whole = _shares(everyone)
    return fmean(_distance(_shares(labels), whole) for labels in clients if labels)


def _shares(labels: Mapping[str, int]) -> dict[str, float]:
    total = sum(labels.values())
    return {name: count / total for name, count in labels.items()}


def _distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return fsum(abs(one.get(name, 0) - other.get(name, 0)) for name in {*one, *other}) / 2


def gini(sizes: Sequence[int]) -> float:
    """The Gini coefficient: 0 if all sizes are equal, near 1 if one client has nearly all."""
    n, total = len(sizes), sum(sizes)
    ranked = sum(rank * size for rank, size in enumerate(sorted(sizes), 1))
    return 2 * ranked / (n * total) - (n + 1) / n
