"""Algorithms by name. A new file in this folder is found without being listed anywhere.

Files whose names begin with an underscore hold what several algorithms share.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consort.core.plugins import Plugin, find
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.core.algorithm import Algorithm


@cache
def algorithm_places() -> dict[str, str]:
    """By name, "module:Class" of every file here; the algorithm is the last class of its file."""
    places = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        if path.stem != "registry":
            *_, last = re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE)
            places[path.stem] = f"consort.algorithms.{path.stem}:{last}"
    return places


plugin = Plugin(algorithms=algorithm_places())


def find_algorithm(name: str) -> type[Algorithm[Any]]:
    """Finds the class of an algorithm.

    Args:
        name: The name of a file in this folder, a name that a plug-in provides, `file.py:Class` or
            `module:Class`.

    Returns:
        The class.

    Raises:
        UsageError: If there is no such class, or it is not an `Algorithm`.
    """
    from consort.core.algorithm import Algorithm

    found = find("algorithms", name)
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(f"{name} is not an Algorithm")
    return found
