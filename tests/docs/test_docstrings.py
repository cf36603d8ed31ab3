"""The public names are documented: parameters, fields and examples, in one style."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from tests.docs.pages import ROOT

import consort

PUBLIC = {name: getattr(consort, name) for name in consort.__all__}
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value)}
OTHER_STYLES = re.compile(
    r"^\s*:(param|type|returns?|rtype|raises?)\b"  # reStructuredText
    r"|^\s*(Parameters|Returns|Yields|Raises|Examples)\n\s*---"  # NumPy
    r"|^\s*(Arguments|Parameters|Params|Return|Yield|Raise|Example):$",  # other words for a section
    re.MULTILINE,
)

public = pytest.mark.parametrize("name", PUBLIC)


# Reading docstrings


@cache
def attribute_docs(path: Path) -> dict[str, str]:
    """The docstrings below assignments in a file, by name: `Class.field`, or `NAME` of a module."""
    tree = ast.parse(path.read_text("utf-8"))
    owners = [("", tree)] + [(f"{n.name}.", n) for n in tree.body if isinstance(n, ast.ClassDef)]
    found = {}
    for owner, node in owners:
        for statement, after in zip(node.body, node.body[1:], strict=False):
            if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
                (target,) = getattr(statement, "targets", None) or [statement.target]
                if isinstance(target, ast.Name) and isinstance(after.value, ast.Constant):
                    found[owner + target.id] = inspect.cleandoc(str(after.value.value))
    return found


def docstring_of(name: str) -> str:
    """The docstring of a public name; that of a type alias is below its assignment."""
    value = PUBLIC[name]
    if inspect.isclass(value) or inspect.isfunction(value):
        return inspect.cleandoc(vars(value).get("__doc__") or getattr(value, "__doc__", ""))
    module = sys.modules[f"consort.{consort._HOMES[name]}"]
    return attribute_docs(Path(inspect.getfile(module)))[name]


def described(docstring: str, *sections: str) -> set[str]:
    """The names that are described in some sections of a docstring."""
    found = set()
    for section in sections:
        for body in re.findall(rf"^{section}:\n((?:(?: {{4}}.*)?\n?)*)", docstring, re.M):
            found |= set(re.findall(r"^ {4}\*{0,2}(\w+):", body, re.M))
    return found


def parameters(function: FunctionType, method: bool) -> list[str]:
    """What callers pass: all parameters but `self`, `cls` and those named with an underscore."""
    names = list(inspect.signature(function).parameters)[method:]
    return [name for name in names if not name.startswith("_")]


def undescribed(function: FunctionType, method: bool) -> set[str]:
    """The parameters that a docstring leaves out.

    They have to be in its `Args`, unless it is a single sentence that names them in backticks.
    """
    docstring = inspect.cleandoc(function.__doc__ or "")
    missing = set(parameters(function, method)) - described(docstring, "Args")
    sentence = "\n" not in docstring
    return {name for name in missing if not (sentence and f"`{name}`" in docstring)}


def functions(name: str) -> Iterator[tuple[str, FunctionType, bool]]:
    """A public function or the methods of a public class; True if they take `self` or `cls`."""
    if inspect.isfunction(PUBLIC[name]):
        yield name, PUBLIC[name], False
    for key, value in vars(PUBLIC[name]).items() if name in CLASSES else ():
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, FunctionType) and not key.startswith("_"):
            yield f"{name}.{key}", function, not isinstance(value, staticmethod)


def fields(kind: type) -> set[str]:
    """What a class is made of: the fields of a dataclass, or the parameters of its `__init__`."""
    if dataclasses.is_dataclass(kind):
        return {field.name for field in dataclasses.fields(kind) if field.init}
    init: Any = vars(kind).get("__init__")
    # A protocol has an `__init__` that `typing` puts there, and that nobody calls.
    own = isinstance(init, FunctionType) and init.__module__ == kind.__module__
    return set(parameters(init, method=True)) if own else set()


def documented_fields(kind: type) -> set[str]:
    """The fields that a class or one of its bases describes."""
    found = set()
    for base in kind.__mro__:
        if base.__module__.startswith("consort."):
            found |= described(inspect.cleandoc(base.__doc__ or ""), "Args", "Attributes")
            below = attribute_docs(Path(inspect.getfile(base)))
            found |= {key.partition(".")[2] for key in below if key.startswith(f"{base.__name__}.")}
    return found


# Examples


@public
def test_every_public_name_has_an_example_that_is_right(name):
    example = doctest.DocTestParser().get_doctest(docstring_of(name), {}, name, None, None)
    assert example.examples, f"{name} has no example"
    runner = doctest.DocTestRunner(verbose=False)
    assert runner.run(example).failed == 0


@public
def test_examples_have_a_heading(name):
    """Without it, the site shows an example as nested quotations."""
    text, heading, _ = docstring_of(name).partition("\nExamples:\n")
    assert heading
    assert ">>>" not in text


# Parameters


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_of_a_public_class_is_described(name):
    assert not fields(CLASSES[name]) - documented_fields(CLASSES[name])


@public
def test_every_parameter_of_a_public_function_is_described(name):
    missing = {key: undescribed(function, bound) for key, function, bound in functions(name)}
    assert not {key: names for key, names in missing.items() if names}


@public
def test_no_parameter_is_described_that_does_not_exist(name):
    for key, function, _ in functions(name):
        named = described(inspect.cleandoc(function.__doc__ or ""), "Args")
        assert named <= set(inspect.signature(function).parameters), key


# Style


def test_docstrings_have_one_style():
    documented = ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef | ast.Module
    for path in sorted((ROOT / "src").rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        found = [ast.get_docstring(node) or "" for node in nodes if isinstance(node, documented)]
        for docstring in (*found, *attribute_docs(path).values()):
            assert not OTHER_STYLES.search(docstring), f"{path}: {docstring}"


@pytest.mark.parametrize(
    "docstring",
    ["Sums.\n\n:param a: One.", "Sums.\n\nReturns\n-------\nint", "Sums.\n\nExample:\n    >>> 1"],
)
def test_other_styles_are_found(docstring):
    assert OTHER_STYLES.search(docstring)


def test_a_parameter_that_is_not_described_is_found():
    def average(items, weights):
        """The mean.

        Args:
            items: What is averaged.
        """

    def double(value):
        """Twice the `value`."""

    def halve(value):
        """Half of it."""

    assert undescribed(average, method=False) == {"weights"}
    assert undescribed(double, method=False) == set()
    assert undescribed(halve, method=False) == {"value"}
