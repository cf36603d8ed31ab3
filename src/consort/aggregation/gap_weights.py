"""Weights of clients that increase where the global model is worse than the client's own.

A gap is positive where the global model is worse. Weights are shares between 0 and 1, and every
function returns weights with the same sum as those it was given, so that the shares of absent
clients need not be known. In all functions, `weights` are the present weights, `gaps` the gaps of
the same clients, and `step` is the size of the change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Denominator = Literal["absolute", "largest"]
"""What deviations are divided by: see `gap_weights`."""
ALIKE = 1e-12
"""Gaps that differ by less count as equal, and equal gaps do not change weights."""


def decayed(step: float, round: int, rounds: int) -> float:
    """The step after `round` of all `rounds`: it decreases linearly from `step` to 0."""
    return (1 - round / rounds) * step


def gap_weights(
    weights: Sequence[float],
    gaps: Sequence[float],
    step: float,
    denominator: Denominator = "absolute",
) -> list[float]:
    """AFFR: w + step (G - μ) / max |G - μ|, where μ is the mean gap.

    Args:
        weights: The present weights.
        gaps: The gaps G.
        step: The largest change of a weight.
        denominator: With `largest` it is max (G - μ), so that weights may fall by more than `step`.

    Returns:
        The new weights.
    """
    deviations = _from_mean(gaps)
    sizes = deviations if denominator == "largest" else list(map(abs, deviations))
    return _moved(weights, deviations, step, max(sizes))


def uncentred_gap_weights(
    weights: Sequence[float], gaps: Sequence[float], step: float
) -> list[float]:
    """FedDG-GA, as its code has it: w + step G / max |G|."""
    return _moved(weights, gaps, step, max(map(abs, gaps)))


def printed_gap_weights(
    weights: Sequence[float], gaps: Sequence[float], step: float
) -> list[float]:
    """AFFR's Equations 5 and 7 as printed: (w + step (μ - G)) / max (μ - G).

    There a gap is the global accuracy minus the local one, and the fraction has both terms in
    its numerator, so that its denominator cancels out as soon as weights are divided by their sum.
    """
    largest = max(-deviation for deviation in _from_mean(gaps))
    return _moved(weights, [-deviation * largest for deviation in _from_mean(gaps)], step, largest)


def exponential_gap_weights(
    weights: Sequence[float], gaps: Sequence[float], step: float
) -> list[float]:
    """AFFR+: w exp(step G), where small gaps change little and weights stay positive."""
    largest = max(gaps)
    if largest - min(gaps) < ALIKE or step == 0:
        return list(weights)
    moved = [w * math.exp(step * (gap - largest)) for w, gap in zip(weights, gaps, strict=True)]
    total = sum(moved)
    return [weight * sum(weights) / total for weight in moved] if total else list(weights)


def _from_mean(gaps: Sequence[float]) -> list[float]:
    mean = sum(gaps) / len(gaps)
    return [gap - mean for gap in gaps]


def _moved(
    weights: Sequence[float], directions: Sequence[float], step: float, unit: float
) -> list[float]:
    """Weights after a step, clipped to [0, 1] and scaled to their old sum, unless all are 0."""
    if unit < ALIKE or step == 0:
        return list(weights)
    moved = [w + step * d / unit for w, d in zip(weights, directions, strict=True)]
    cut = [min(max(weight, 0.0), 1.0) for weight in moved]
    total = sum(cut)
    return [weight * sum(weights) / total for weight in cut] if total else cut
