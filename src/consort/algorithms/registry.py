"""Algorithms by name. A new file in this folder is found without being listed anywhere."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consort.core.registry import did_you_mean, first_line, load_object
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.core.algorithm import Algorithm


@cache
def algorithm_places() -> dict[str, str]:
    """Name → "module:Class" for every file here; the algorithm is the last class of its file."""
    places = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem not in ("__init__", "registry"):
            nodes = ast.parse(path.read_text()).body
            *_, last = (node.name for node in nodes if isinstance(node, ast.ClassDef))
            places[path.stem] = f"consort.algorithms.{path.stem}:{last}"
    return places


def describe_algorithms() -> dict[str, str]:
    """The first line about every algorithm."""
    return {name: first_line(place) for name, place in algorithm_places().items()}


def find_algorithm(name: str) -> type[Algorithm[Any]]:
    """The class of an algorithm: a name from this folder, or `file.py:Class`, `module:Class`."""
    from consort.core.algorithm import Algorithm

    if ":" in name:
        found = load_object(name)
    elif name in algorithm_places():
        found = load_object(algorithm_places()[name])
    else:
        raise UsageError(f"there is no algorithm {did_you_mean(name, algorithm_places())}")
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(f"{name} is not an Algorithm")
    return found
