"""Numbers about numbers: over seeds, over clients, and how sure a difference is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev, quantiles, stdev
from statistics import mean as exact_mean


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation over seeds; one seed has no deviation: 0."""

    mean: float
    std: float
    n: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.n)


@dataclass(frozen=True)
class Spread:
    """How a metric differs among clients; `std` is of the population, `weighted` by examples."""

    mean: float
    std: float
    min: float
    max: float
    weighted: float


def summarise(values: Sequence[float]) -> Summary:
    """Mean and sample standard deviation of one value per seed."""
    std = _deviation(stdev, values) if len(values) > 1 else 0.0
    return Summary(float(exact_mean(values)), std, len(values))


def spread(values: Sequence[float], examples: Sequence[float]) -> Spread:
    """The spread of one value per client, given how many examples each stands for."""
    total = sum(value * weight for value, weight in zip(values, examples, strict=True))
    return Spread(
        mean=float(exact_mean(values)),
        std=_deviation(pstdev, values),
        min=min(values),
        max=max(values),
        weighted=total / sum(examples),
    )


def mean(values: Iterable[float]) -> float:
    """The mean, unless something diverged: then it is not a number."""
    numbers = list(values)
    return fmean(numbers) if numbers and all(map(math.isfinite, numbers)) else math.nan


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and the bounds of the middle half."""
    average = mean(values)
    if len(values) < 2 or math.isnan(average):
        return average, average, average
    low, _, high = quantiles(values, n=4, method="inclusive")
    return average, low, high


def confidence_interval(differences: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """Student's interval for the mean of paired differences.

    One difference says nothing about the spread, so its interval is the whole line; equal
    differences give the point.
    """
    if len(differences) < 2:
        return -math.inf, math.inf
    from scipy.special import stdtrit

    summary = summarise(differences)
    quantile = float(stdtrit(summary.n - 1, (1 + level) / 2))
    half = quantile * summary.std / math.sqrt(summary.n)
    return summary.mean - half, summary.mean + half


def format_summary(summary: Summary, digits: int) -> str:
    """The summary as in a paper's table: `0.812 ± 0.004`, or `0.812` for one seed."""
    text = f"{summary.mean:.{digits}f}"
    return text if summary.n == 1 else f"{text} ± {summary.std:.{digits}f}"


def _deviation(measure: Callable[[Sequence[float]], float], values: Sequence[float]) -> float:
    # The standard library's deviations cannot take the inf and nan of a run that diverged.
    return float(measure(values)) if all(map(math.isfinite, values)) else math.nan
