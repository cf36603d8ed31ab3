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
    """Name → "module:Class" for every file here; the algorithm is the last class of its file."""
    places = {}
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        if path.stem != "registry":
            *_, last = re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE)
            places[path.stem] = f"consort.algorithms.{path.stem}:{last}"
    return places


plugin = Plugin(algorithms=algorithm_places())


def find_algorithm(name: str) -> type[Algorithm[Any]]:
    """The class of an algorithm.

    Args:
        name: That of a file in this folder or of a plug-in, or `file.py:Class`, `module:Class`.

    Raises:
        UsageError: There is no such class, or it is not an `Algorithm`.
    """
    from consort.core.algorithm import Algorithm

    found = find("algorithms", name)
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise UsageError(f"{name} is not an Algorithm")
    return found
