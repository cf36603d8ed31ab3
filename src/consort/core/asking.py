"""Mistakes in the text of an algorithm that are found before any client is asked."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

from consort.core.clients import answers_of
from consort.core.messages import EVALUATION
from consort.core.registry import did_you_mean
from consort.errors import UsageError


@cache
def check_text(algorithm: Any) -> None:
    """Checks that means are those of answers, and that answers hold no `state_dict`.

    Only what is written as it is, such as `replies.mean("model")`, is looked at, and means only if
    all client methods declare what they answer.

    Args:
        algorithm: The class of an algorithm.

    Raises:
        UsageError: If there is a mistake; it names the file and the line.
    """
    methods = _methods(algorithm)
    asked = {name: method for name, method in methods.items() if hasattr(method, "on_client")}
    declared = [answers_of(m) for name, m in asked.items() if name != EVALUATION]
    known = {key for answers in declared for key in answers or ()}
    for name, method in methods.items():
        for place, node in _nodes(method):
            if name in asked and _returns_weights(node):
                raise UsageError(
                    f"{place}: a client cannot answer with a state_dict, of which there is no "
                    "mean: let it answer Params.of(client.model)"
                )
            for key in _means(node) if declared and None not in declared else ():
                if key not in known:
                    raise UsageError(
                        f"{place}: no client answers {did_you_mean(key, sorted(known))}"
                    )


def _methods(algorithm: Any) -> dict[str, FunctionType]:
    found: dict[str, FunctionType] = {}
    for kind in reversed(algorithm.__mro__):
        found |= {name: m for name, m in vars(kind).items() if isinstance(m, FunctionType)}
    return found


def _nodes(method: FunctionType) -> Iterator[tuple[str, ast.AST]]:
    """The parts of a method's text with their file and line; none if there is no text."""
    try:
        lines, first = inspect.getsourcelines(method)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return
    file = Path(method.__code__.co_filename).name
    for node in ast.walk(tree):
        yield f"{file}, line {first + getattr(node, 'lineno', 1) - 1}", node


def _means(node: ast.AST) -> list[str]:
    """The entries of answers of which a call computes the mean, and its weights."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return []
    weights = [keyword.value for keyword in node.keywords if keyword.arg == "weight"]
    given = [argument for argument in [*node.args, *weights] if isinstance(argument, ast.Constant)]
    return [g.value for g in given if node.func.attr == "mean" and isinstance(g.value, str)]


def _returns_weights(node: ast.AST) -> bool:
    values = node.value.values if _returns_table(node) else []  # type: ignore[attr-defined]
    return any(
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr == "state_dict"
        for value in values
    )


def _returns_table(node: ast.AST) -> bool:
    return isinstance(node, ast.Return) and isinstance(node.value, ast.Dict)
