"""Results as data frames of pandas or polars, whichever is there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from consort.core.row import Row
from consort.errors import UsageError
from consort.run.history import History

if TYPE_CHECKING:
    from consort.results.result import Result

_LIBRARIES = ("pandas", "polars")


def frame_of(columns: Mapping[str, Sequence[Any]]) -> Any:
    """A data frame: of the library that the caller has imported, otherwise pandas before polars.

    Args:
        columns: The columns by name, all of one length.

    Raises:
        UsageError: Neither is installed.
    """
    imported = [name for name in _LIBRARIES if sys.modules.get(name)]
    installed = [name for name in _LIBRARIES if name in sys.modules or find_spec(name)]
    for name in (*imported, *installed):
        if sys.modules.get(name, True):
            return import_module(name).DataFrame({key: list(v) for key, v in columns.items()})
    raise UsageError("data frames are those of pandas or polars: pip install pandas")


def history_frame(results: Iterable[Result]) -> Any:
    """All rows of the histories of some runs, with the algorithm and the seed of each.

    Args:
        results: The runs.
    """
    rows = [
        (result.algorithm, result.seed, *row)
        for result in results
        for row in History(result.folder / "history.jsonl")
    ]
    names = ("algorithm", "seed", *Row._fields)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return frame_of(dict(zip(names, columns, strict=True)))
