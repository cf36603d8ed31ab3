"""What stands on a side of a claim: numbers, metrics of algorithms, and arithmetic with both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

EACH_OTHER = "each other"

Arithmetic: TypeAlias = Callable[[Fraction, Fraction], Fraction]


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


def exact(number: float) -> Fraction:
    """A number by its decimal digits, so that 0.52 >= 0.5 + 0.02 is not up to binary rounding."""
    return Fraction(repr(float(number)))


def value_of(expression: Expression, values: Mapping[Measure, Fraction]) -> Fraction:
    """What an expression comes to."""
    match expression:
        case Measure():
            return values[expression]
        case Operation(apply=apply, left=left, right=right):
            return apply(value_of(left, values), value_of(right, values))
    return expression


def measures_in(expression: Expression) -> Iterator[Measure]:
    """Everything an expression asks to be measured."""
    match expression:
        case Measure():
            yield expression
        case Operation(left=left, right=right):
            yield from measures_in(left)
            yield from measures_in(right)


def naming(expression: Expression, rival: str) -> Expression:
    """An expression with a rival in the place of `each other`."""
    match expression:
        case Measure(metric=metric, algorithm=algorithm) if algorithm == EACH_OTHER:
            return Measure(metric, rival)
        case Operation(apply=apply, left=left, right=right):
            return Operation(apply, naming(left, rival), naming(right, rival))
    return expression
