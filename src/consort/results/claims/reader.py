"""How the text of a claim is read: Python's own syntax, of which little is let through."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction

from consort.errors import UsageError
from consort.results.claims.comparison import Comparison
from consort.results.claims.expressions import (
    EACH_OTHER,
    Arithmetic,
    Expression,
    Measure,
    Operation,
    exact,
)
from consort.results.claims.no_task_worse import EACH_TASK, STANDARD_ERROR, NoTaskWorse

SHAPE = f'write two sides and one of <, <=, >, >= between them, as in "eer(a) < eer({EACH_OTHER})"'
_BY_TASK = (
    f"`{EACH_TASK}` and `{STANDARD_ERROR}` stand only in a claim such as "
    f'"{EACH_TASK}(a) >= {EACH_TASK}(b) - {STANDARD_ERROR}"'
)
_TWO_WORDS = re.compile(r"\b(each|standard)\s+(other|task|error)\b", re.IGNORECASE)

_ARITHMETIC: dict[type[ast.operator], Arithmetic] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass(frozen=True)
class ClaimReader:
    """Turns Python's syntax tree into a comparison; whatever is not listed here is refused."""

    algorithms: Sequence[str]
    metrics: Sequence[str]

    def comparison(self, text: str) -> Comparison:
        """The comparison that a text says."""
        source = _TWO_WORDS.sub(r"\1_\2", text.strip())
        match ast.parse(source, mode="eval").body:
            case ast.Compare(
                left=left,
                ops=[ast.GtE()],
                comparators=[ast.BinOp(left=right, op=ast.Sub(), right=ast.Name(id=name))],
            ) if _same(name, STANDARD_ERROR):
                return NoTaskWorse(self._each_task(right), self._each_task(left))
            case ast.Compare(left=left, ops=[sign], comparators=[right]) if isinstance(
                sign, _COMPARISONS
            ):
                sides = self._expression(left), self._expression(right)
                smaller, larger = sides if isinstance(sign, ast.Lt | ast.LtE) else sides[::-1]
                return Comparison(smaller, larger, strict=isinstance(sign, ast.Lt | ast.Gt))
        raise UsageError(SHAPE)

    def _each_task(self, node: ast.expr) -> Measure:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if _same(
                name, EACH_TASK
            ):
                return Measure(EACH_TASK, self._algorithm(argument))
        raise UsageError(_BY_TASK)

    def _expression(self, node: ast.expr) -> Expression:
        match node:
            case ast.Name(id=name) if _same(name, STANDARD_ERROR):
                raise UsageError(_BY_TASK)
            case ast.Call(func=ast.Name(id=name)) if _same(name, EACH_TASK):
                raise UsageError(_BY_TASK)
            case ast.Constant(value=int() | float() as number) if _is_finite(number):
                return exact(number)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return Operation(operator.sub, Fraction(0), self._expression(inner))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
                apply = _ARITHMETIC[type(sign)]
                return Operation(apply, self._expression(left), self._expression(right))
            case ast.Call(func=ast.Name(id=metric), args=[argument], keywords=[]):
                known = _find("metric", metric, self.metrics or [metric])
                return Measure(known, self._algorithm(argument))
        raise UsageError(
            f"`{ast.unparse(node)}` is neither a number nor metric(algorithm), nor + - * / of these"
        )

    def _algorithm(self, node: ast.expr) -> str:
        return _find("algorithm", ast.unparse(node), [*self.algorithms, EACH_OTHER])


def _find(kind: str, word: str, valid: Sequence[str]) -> str:
    by_key = {_key(name): name for name in valid}
    key = _key(word)
    if key in by_key:
        return by_key[key]
    closest = by_key[get_close_matches(key, by_key, n=1, cutoff=0.0)[0]]
    choices = ", ".join(sorted({*valid} - {EACH_OTHER}))
    raise UsageError(
        f"this comparison has no {kind} `{word}`; did you mean `{closest}`? (there are: {choices})"
    )


def _same(word: str, name: str) -> bool:
    return _key(word) == _key(name)


def _key(name: str) -> str:
    return re.sub(r"\b[\s-]+\b|_", "", name).casefold()


def _is_finite(number: float) -> bool:
    return not isinstance(number, bool) and abs(number) < math.inf
