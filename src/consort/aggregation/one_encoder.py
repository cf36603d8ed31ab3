"""One encoder for different tasks, updated by all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from consort.aggregation.min_norm import gram
from consort.core.params import Params


def one_step(start: Params, updates: Sequence[Params]) -> Params:
    """Adds the mean update, scaled to the mean norm of the updates.

    Updates of different tasks are almost orthogonal: the mean of n is √n times shorter than each.

    Args:
        start: The encoder before the updates.
        updates: The updates.

    Returns:
        The encoder after the step.
    """
    products = gram(updates)
    length = math.sqrt(max(float(products.mean()), 0.0))
    stretch = float(products.diagonal().sqrt().mean()) / length if length else 1.0
    share = stretch / len(updates)
    return Params(
        {name: start[name] + share * sum(u[name] for u in updates) for name in updates[0]}
    )


def is_one(encoders: Iterable[Params]) -> bool:
    """Whether all `encoders` are the same; in a run that was extended, they may differ."""
    first, *others = encoders
    return all(other.equals(first) for other in others)
