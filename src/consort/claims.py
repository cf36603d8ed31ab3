"""Claims about a comparison, such as `eer(FedMH) < eer(each other)`, and their verdicts."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Literal, TypeAlias

from consort.errors import UsageError
from consort.statistics import confidence_interval, summarise

EACH_OTHER = "each other"
EXACT_METRICS = frozenset({"bytes", "bytes_up", "bytes_down", "flops"})

Outcome: TypeAlias = Literal["holds", "fails", "undecided"]
Measured: TypeAlias = Mapping[tuple[str, str], Mapping[int, float]]
Arithmetic: TypeAlias = Callable[[Fraction, Fraction], Fraction]

_ARITHMETIC: dict[type[ast.operator], Arithmetic] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_WORST_FIRST: tuple[Outcome, ...] = ("fails", "undecided", "holds")
_SHAPE = f'write two sides and one of <, <=, >, >= between them, as in "eer(a) < eer({EACH_OTHER})"'


@dataclass(frozen=True)
class Verdict:
    """What the measurements say about a claim, and why."""

    claim: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True)
class Measure:
    """A metric of an algorithm."""

    metric: str
    algorithm: str

    def __str__(self) -> str:
        return f"{self.metric}({self.algorithm})"


@dataclass(frozen=True)
class Operation:
    """Two expressions and the arithmetic between them."""

    apply: Arithmetic
    left: Expression
    right: Expression


Expression: TypeAlias = Fraction | Measure | Operation


@dataclass(frozen=True)
class Finding:
    """What one comparison came to."""

    outcome: Outcome
    margin: float
    detail: str


@dataclass(frozen=True)
class Comparison:
    """One thing a claim says: that `smaller` lies below `larger`, perhaps about one rival."""

    smaller: Expression
    larger: Expression
    strict: bool
    rival: str | None = None

    def against(self, rival: str) -> Comparison:
        """The comparison with this rival in the place of `each other`."""
        smaller, larger = _named(self.smaller, rival), _named(self.larger, rival)
        return Comparison(smaller, larger, self.strict, rival)

    def judge(self, measured: Measured) -> Finding:
        """Decides from the interval of the mean margin over paired seeds."""
        try:
            margins = list(self._margins(measured))
        except _Undecidable as reason:
            return Finding("undecided", -math.inf, self._about(str(reason)))
        low, high = self._interval(margins)
        margin = summarise(margins).mean
        detail = self._about(_words(margin, low, high, len(margins)))
        return Finding(self._outcome(low, high), margin, detail)

    def _measures(self) -> list[Measure]:
        return [*_measures_in(self.smaller), *_measures_in(self.larger)]

    def _margins(self, measured: Measured) -> Iterator[float]:
        series = {m: measured.get((m.metric, m.algorithm), {}) for m in self._measures()}
        seeds = set.intersection(*map(set, series.values()))
        if not seeds:
            raise _Undecidable(f"no seed has all of {', '.join(map(str, series))}")
        for seed in sorted(seeds):
            yield self._margin({m: values[seed] for m, values in series.items()}, seed)

    def _margin(self, values: Mapping[Measure, float], seed: int) -> float:
        for measure, value in values.items():
            if not math.isfinite(value):
                raise _Undecidable(f"{measure} is {value} with seed {seed}")
        exact = {measure: _exact(value) for measure, value in values.items()}
        try:
            return float(_value(self.larger, exact) - _value(self.smaller, exact))
        except ArithmeticError:
            raise _Undecidable(f"the margin is not a finite number with seed {seed}") from None

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


@dataclass(frozen=True)
class Claim:
    """A line that a comparison of algorithms may confirm or refute."""

    text: str
    comparisons: tuple[Comparison, ...]

    @classmethod
    def parse(cls, text: str, algorithms: Sequence[str], metrics: Sequence[str] = ()) -> Claim:
        """Reads a claim about these algorithms and metrics; before a run any metric will do."""
        try:
            comparison = _Reader(algorithms, metrics).comparison(text)
            return cls(text, _spelt_out(comparison, algorithms))
        except UsageError as problem:
            raise UsageError(f"claim `{text}`: {problem}") from None
        except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
            raise UsageError(f"claim `{text}` cannot be read: {_SHAPE}") from None

    def judge(self, measured: Measured) -> Verdict:
        """Holds if every comparison holds, fails if any fails; the weakest one is told."""
        findings = [comparison.judge(measured) for comparison in self.comparisons]
        weakest = min(findings, key=lambda f: (_WORST_FIRST.index(f.outcome), f.margin))
        return Verdict(self.text, weakest.outcome, weakest.detail)


@dataclass(frozen=True)
class _Reader:
    """Turns Python's syntax tree into a comparison; whatever is not listed here is refused."""

    algorithms: Sequence[str]
    metrics: Sequence[str]

    def comparison(self, text: str) -> Comparison:
        source = re.sub(r"\beach\s+other\b", "each_other", text.strip(), flags=re.IGNORECASE)
        match ast.parse(source, mode="eval").body:
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if isinstance(
                sign, _COMPARISONS
            ):
                sides = self.expression(left), self.expression(right)
                smaller, larger = sides if isinstance(sign, ast.Lt | ast.LtE) else sides[::-1]
                return Comparison(smaller, larger, strict=isinstance(sign, ast.Lt | ast.Gt))
        raise UsageError(_SHAPE)

    def expression(self, node: ast.expr) -> Expression:
        match node:
            case ast.Constant(value=int() | float() as number) if _is_finite(number):
                return _exact(number)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return Operation(operator.sub, Fraction(0), self.expression(inner))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
                apply = _ARITHMETIC[type(sign)]
                return Operation(apply, self.expression(left), self.expression(right))
            case ast.Call(func=ast.Name(id=metric), args=[argument], keywords=[]):
                return Measure(
                    _find("metric", metric, self.metrics or [metric]),
                    _find("algorithm", ast.unparse(argument), [*self.algorithms, EACH_OTHER]),
                )
        raise UsageError(
            f"`{ast.unparse(node)}` is neither a number nor metric(algorithm), nor + - * / of these"
        )


class _Undecidable(Exception):
    """Why the measurements cannot decide."""


def _spelt_out(comparison: Comparison, algorithms: Sequence[str]) -> tuple[Comparison, ...]:
    smaller, larger = (
        {measure.algorithm for measure in _measures_in(side)}
        for side in (comparison.smaller, comparison.larger)
    )
    named = smaller | larger
    if not named:
        raise UsageError("it names no algorithm; write one as metric(algorithm)")
    if EACH_OTHER in smaller & larger:
        raise UsageError(f"`{EACH_OTHER}` can stand on one side only")
    if EACH_OTHER not in named:
        return (comparison,)
    rivals = [algorithm for algorithm in algorithms if algorithm not in named]
    if not rivals:
        raise UsageError(f"`{EACH_OTHER}` needs an algorithm in the comparison that it can mean")
    return tuple(comparison.against(rival) for rival in rivals)


def _find(kind: str, word: str, valid: Sequence[str]) -> str:
    by_key = {_key(name): name for name in valid}
    key = _key(word)
    if key in by_key:
        return by_key[key]
    closest = by_key[get_close_matches(key, by_key, n=1, cutoff=0.0)[0]]
    raise UsageError(f"this comparison has no {kind} `{word}`; did you mean `{closest}`?")


def _key(name: str) -> str:
    return re.sub(r"\b[\s-]+\b|_", "", name).casefold()


def _is_finite(number: float) -> bool:
    return not isinstance(number, bool) and abs(number) < math.inf


def _exact(number: float) -> Fraction:
    # By its decimal digits, so that 0.52 >= 0.5 + 0.02 is not decided by binary rounding.
    return Fraction(repr(float(number)))


def _value(expression: Expression, values: Mapping[Measure, Fraction]) -> Fraction:
    match expression:
        case Measure():
            return values[expression]
        case Operation(apply=apply, left=left, right=right):
            return apply(_value(left, values), _value(right, values))
    return expression


def _measures_in(expression: Expression) -> Iterator[Measure]:
    match expression:
        case Measure():
            yield expression
        case Operation(left=left, right=right):
            yield from _measures_in(left)
            yield from _measures_in(right)


def _named(expression: Expression, rival: str) -> Expression:
    match expression:
        case Measure(metric=metric, algorithm=algorithm) if algorithm == EACH_OTHER:
            return Measure(metric, rival)
        case Operation(apply=apply, left=left, right=right):
            return Operation(apply, _named(left, rival), _named(right, rival))
    return expression


def _words(margin: float, low: float, high: float, seeds: int) -> str:
    if low == high:
        return f"margin {margin:+.4g} exactly"
    if seeds == 1:
        return f"margin {margin:+.4g} with one seed; more seeds are needed to decide"
    return f"margin {margin:+.4g}, 95 % interval [{low:+.4g}, {high:+.4g}] over {seeds} seeds"
