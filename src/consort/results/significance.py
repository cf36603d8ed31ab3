"""Whether algorithms really differ: paired tests, Holm's correction, Friedman's test with Nemenyi.

Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from consort.errors import UsageError
from consort.results.summary import summarise

TestName: TypeAlias = Literal["t", "wilcoxon", "friedman"]
LEVEL = 0.05
"""Differences with a smaller (corrected) probability are significant."""


def t_test(one: Sequence[float], other: Sequence[float]) -> float:
    """Student's paired t-test.

    Args:
        one: Values of one algorithm.
        other: Values of another one, in the same order.

    Returns:
        The two-sided probability of such a difference by chance; 1 if there is no difference, or if
        a single pair says nothing about the spread.
    """
    from scipy.special import stdtr

    difference = summarise([a - b for a, b in zip(one, other, strict=True)])
    if difference.n < 2 or difference.mean == 0:
        return 1.0
    if difference.std == 0:
        return 0.0
    return 2 * float(stdtr(difference.n - 1, -abs(difference.mean) / difference.error))


def wilcoxon(one: Sequence[float], other: Sequence[float]) -> float:
    """Wilcoxon's signed-rank test, as SciPy computes it; arguments and result as for `t_test`."""
    from scipy.stats import wilcoxon as signed_rank

    differences = [a - b for a, b in zip(one, other, strict=True)]
    return float(signed_rank(differences).pvalue) if any(differences) else 1.0


PAIRED: dict[TestName, Callable[[Sequence[float], Sequence[float]], float]] = {
    "t": t_test,
    "wilcoxon": wilcoxon,
}


def holm(probabilities: Mapping[str, float]) -> dict[str, float]:
    """Corrects the probabilities of several tests by Holm's step-down method.

    Args:
        probabilities: The probability of every test, by name.

    Returns:
        The corrected probabilities: the smallest is multiplied by the number of tests, the next by
        one less, and so on; none is smaller than the one before, and none exceeds 1.
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for place, name in enumerate(sorted(probabilities, key=probabilities.__getitem__)):
        largest = max(largest, (len(probabilities) - place) * probabilities[name])
        corrected[name] = min(1.0, largest)
    return {name: corrected[name] for name in probabilities}


@dataclass(frozen=True)
class Friedman:
    """Friedman's test of several algorithms, and the critical difference of Nemenyi's."""

    statistic: float
    """χ² with one degree of freedom fewer than algorithms, corrected for ties."""
    probability: float
    """That all algorithms are equally good, and the ranks differ by chance."""
    ranks: Mapping[str, float]
    """The average rank of every algorithm, best first; 1 is best."""
    critical_difference: float
    """Algorithms whose average ranks differ by at least this much differ significantly."""
    blocks: int
    """On how many data sets, clients or seeds the algorithms were ranked."""

    @property
    def significant(self) -> bool:
        """Whether any algorithms differ."""
        return self.probability < LEVEL

    def differ(self, one: str, other: str) -> bool:
        """Whether two algorithms differ significantly.

        Args:
            one: The name of an algorithm.
            other: The name of another one.
        """
        distance = abs(self.ranks[one] - self.ranks[other])
        return self.significant and distance >= self.critical_difference

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The largest groups of at least two algorithms that do not differ significantly."""
        names = list(self.ranks)
        found: list[tuple[str, ...]] = []
        end = 0
        for start, name in enumerate(names):
            reach = start
            while reach + 1 < len(names) and not self.differ(name, names[reach + 1]):
                reach += 1
            if reach > start and reach + 1 > end:
                found.append(tuple(names[start : reach + 1]))
            end = max(end, reach + 1)
        return found


def friedman(scores: Mapping[str, Sequence[float]], higher_is_better: bool = True) -> Friedman:
    """Ranks algorithms on several data sets (or clients, or seeds) and tests whether they differ.

    Args:
        scores: The values of every algorithm, in the same order for all.
        higher_is_better: Whether the largest value gets rank 1.

    Raises:
        UsageError: There are fewer than three algorithms, or fewer than two values of each.
    """
    from scipy.stats import friedmanchisquare, rankdata

    if len(scores) < 3:
        raise UsageError("Friedman's test compares at least three algorithms: use --test wilcoxon")
    table = [list(values) for values in scores.values()]
    blocks = len(table[0])
    if blocks < 2:
        raise UsageError("Friedman's test needs several seeds, clients or folders: see --over")
    sign = -1.0 if higher_is_better else 1.0
    rows = [rankdata([sign * value for value in block]) for block in zip(*table, strict=True)]
    means = [float(sum(column)) / blocks for column in zip(*rows, strict=True)]
    if all(len(set(block)) == 1 for block in zip(*table, strict=True)):
        statistic, probability = 0.0, 1.0  # SciPy divides by zero
    else:
        found = friedmanchisquare(*table)
        statistic, probability = float(found.statistic), float(found.pvalue)
    ranks = dict(sorted(zip(scores, means, strict=True), key=lambda item: item[1]))
    return Friedman(statistic, probability, ranks, critical_difference(len(scores), blocks), blocks)


def critical_difference(algorithms: int, blocks: int, level: float = LEVEL) -> float:
    """How far average ranks must be apart by Nemenyi's test.

    Args:
        algorithms: How many algorithms are ranked.
        blocks: On how many data sets.
        level: The probability of finding a difference where there is none.
    """
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1 - level, algorithms, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(algorithms * (algorithms + 1) / (6 * blocks))
