"""Intervals of error rates: exact ones of counts, and ones over users whose samples hang together.

Clopper and Pearson (1934) treat every decision as independent. Samples of one user are not, so the
bootstrap over users (Bolle, Ratha and Pankanti 2004 recommend such subsets) draws whole users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
DRAWS = 1000

Sample = TypeVar("Sample")


class Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.low:.1f} to {100 * self.high:.1f} %"


def clopper_pearson(wrong: float, total: float, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of a rate of independent decisions.

    Args:
        wrong: The number of wrong decisions; a fraction if every sample was decided several times.
        total: The number of decisions.
        confidence: The probability with which the interval contains the rate.

    Returns:
        The interval; from 0 to 1 if there was no decision.

    Raises:
        ValueError: If there are more wrong decisions than decisions.
    """
    from scipy.special import betaincinv

    if not 0 <= wrong <= total:
        raise ValueError(f"{wrong} of {total} decisions cannot be wrong")
    tail = (1 - confidence) / 2
    low = betaincinv(wrong, total - wrong + 1, tail) if wrong > 0 else 0.0
    high = betaincinv(wrong + 1, total - wrong, 1 - tail) if wrong < total else 1.0
    return Interval(float(low), float(high))


def rate_over_users(
    wrong: ArrayLike, totals: ArrayLike, confidence: float = CONFIDENCE, seed: int = 0
) -> Interval | None:
    """The percentile bootstrap of a rate at a fixed threshold, over users.

    Args:
        wrong: The number of wrong decisions about each user.
        totals: The number of decisions about each user.
        confidence: The probability with which the interval contains the rate.
        seed: The seed of the draws.

    Returns:
        The interval, or `None` if there are fewer than two users with a decision.
    """
    counts, sizes = (np.asarray(part, dtype=np.float64) for part in (wrong, totals))
    counts, sizes = counts[sizes > 0], sizes[sizes > 0]
    if len(sizes) < 2:
        return None
    drawn = np.random.default_rng(seed).integers(len(sizes), size=(DRAWS, len(sizes)))
    return _percentiles(counts[drawn].sum(1) / sizes[drawn].sum(1), confidence)


def bootstrap_over_users(
    users: Sequence[Sample],
    statistic: Callable[[list[Sample]], float],
    confidence: float = CONFIDENCE,
    seed: int = 0,
    draws: int = DRAWS,
) -> Interval | None:
    """The percentile bootstrap of any statistic, over users.

    Args:
        users: What belongs to each user.
        statistic: Computes the value for some users, among whom one may be several times.
        confidence: The probability with which the interval contains the value.
        seed: The seed of the draws.
        draws: The number of draws.

    Returns:
        The interval, or `None` if there are fewer than two users.
    """
    if len(users) < 2:
        return None
    generator = np.random.default_rng(seed)
    places = generator.integers(len(users), size=(draws, len(users)))
    return _percentiles(
        np.array([statistic([users[place] for place in row]) for row in places]), confidence
    )


def _percentiles(values: NDArray[np.float64], confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return Interval(float(low), float(high))
