"""One thing that a claim says, and what measurements over paired seeds make of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from consort.results.claims.expressions import (
    Expression,
    Measure,
    exact,
    measures_in,
    naming,
    value_of,
)
from consort.results.summary import confidence_interval, summarise

EXACT_METRICS = frozenset({"bytes", "bytes_up", "bytes_down", "flops"})

Outcome: TypeAlias = Literal["holds", "fails", "undecided"]
Values: TypeAlias = Mapping[tuple[str, str], Mapping[int, float]]
"""By metric and algorithm: the value with every seed."""

_WORST_FIRST: tuple[Outcome, ...] = ("fails", "undecided", "holds")


@dataclass(frozen=True)
class Measured:
    """What claims are judged by."""

    values: Values
    """Of whole runs."""
    tasks: Mapping[str, Values] = field(default_factory=dict)
    """By task of a group of clients: its score as `each task`, higher is better."""


@dataclass(frozen=True)
class Finding:
    """What one comparison came to."""

    outcome: Outcome
    margin: float
    detail: str


def weakest(findings: Sequence[Finding]) -> Finding:
    """The finding that decides about all of them together."""
    return min(findings, key=lambda f: (_WORST_FIRST.index(f.outcome), f.margin))


@dataclass(frozen=True)
class Comparison:
    """That `smaller` lies below `larger`, perhaps about one rival."""

    smaller: Expression
    larger: Expression
    strict: bool = False
    rival: str | None = None

    def against(self, rival: str) -> Comparison:
        """The comparison with this rival in the place of `each other`."""
        smaller, larger = naming(self.smaller, rival), naming(self.larger, rival)
        return replace(self, smaller=smaller, larger=larger, rival=rival)

    def judge(self, measured: Measured) -> Finding:
        """Decides from the interval of the mean margin over paired seeds."""
        try:
            margins = list(self._margins(measured.values))
        except Undecidable as reason:
            return Finding("undecided", -math.inf, self._about(str(reason)))
        low, high = self._interval(margins)
        margin = summarise(margins).mean
        detail = self._about(_words(margin, low, high, len(margins)))
        return Finding(self._outcome(low, high), margin, detail)

    def _measures(self) -> list[Measure]:
        return [*measures_in(self.smaller), *measures_in(self.larger)]

    def _margins(self, values: Values) -> Iterator[float]:
        series = {m: values.get((m.metric, m.algorithm), {}) for m in self._measures()}
        seeds = set.intersection(*map(set, series.values()))
        if not seeds:
            raise Undecidable(f"no seed has all of {', '.join(map(str, series))}")
        for seed in sorted(seeds):
            yield self._margin({m: found[seed] for m, found in series.items()}, seed)

    def _margin(self, values: Mapping[Measure, float], seed: int) -> float:
        for measure, value in values.items():
            if not math.isfinite(value):
                raise Undecidable(f"{measure} is {value} with seed {seed}")
        digits = {measure: exact(value) for measure, value in values.items()}
        try:
            return float(value_of(self.larger, digits) - value_of(self.smaller, digits))
        except ArithmeticError:
            raise Undecidable(f"the margin is not a finite number with seed {seed}") from None

    def _interval(self, margins: Sequence[float]) -> tuple[float, float]:
        if len(margins) == 1 and all(m.metric in EXACT_METRICS for m in self._measures()):
            return margins[0], margins[0]
        return confidence_interval(margins)

    def _outcome(self, low: float, high: float) -> Outcome:
        if low > 0 or (low == 0 and not self.strict):
            return "holds"
        if high < 0 or (high == 0 and self.strict):
            return "fails"
        return "undecided"

    def _about(self, detail: str) -> str:
        return f"against {self.rival}: {detail}" if self.rival else detail


class Undecidable(Exception):
    """Why the measurements cannot decide."""


def _words(margin: float, low: float, high: float, seeds: int) -> str:
    if low == high:
        return f"margin {margin:+.4g} exactly"
    if seeds == 1:
        return f"margin {margin:+.4g} with one seed; more seeds are needed to decide"
    return f"margin {margin:+.4g}, 95 % interval [{low:+.4g}, {high:+.4g}] over {seeds} seeds"
