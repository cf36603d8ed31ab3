"""One encoder for different tasks, moved by the updates of all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from consort.aggregation.min_norm import gram
from consort.core.params import Params


def one_step(start: Params, updates: Sequence[Params]) -> Params:
    """The start plus the mean update, stretched to the mean length of the updates.

    Updates of different tasks are almost orthogonal: the mean of n is √n times shorter than each.
    """
    products = gram(updates)
    length = math.sqrt(max(float(products.mean()), 0.0))
    stretch = float(products.diagonal().sqrt().mean()) / length if length else 1.0
    share = stretch / len(updates)
    return Params(
        {name: start[name] + share * sum(u[name] for u in updates) for name in updates[0]}
    )


def is_one(encoders: Iterable[Params]) -> bool:
    """Whether all are the same; in a run that was extended they may no longer be."""
    first, *others = encoders
    return all(other.equals(first) for other in others)
