"""What the folder of a run says about it. This module reads `run.json` and never writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import consort
from consort.core.sealed import read_json
from consort.errors import Failure, UsageError
from consort.run.checkpoints import Checkpoints
from consort.run.history import History

FORMAT = 2
"""Of `run.json` and the files beside it. It changes when they cannot be read as before.

Format 1 had a file for each state of a client, and no digests in `run.json` and of the history.
"""

_READABLE = (1, FORMAT)
_NAME = "run.json"
HISTORY = "history.jsonl"
"""The name of the file with the results."""
CLEANED = "cleaned"
"""The key of `run.json` that says that only the results are left, with their length and digest."""
_KEYS = (
    "algorithm",
    "seed",
    "rounds",
    "reports",
    "recipe",
    "partition",
    "tasks",
    "clients",
    "workers",
    "data",
)


def read_description(folder: Path) -> dict[str, Any]:
    """Reads what `run.json` says about the run in a folder.

    Args:
        folder: The folder of one run.

    Returns:
        The description, in which every key that a run needs is there.

    Raises:
        UsageError: If the folder holds no run, or one that another version wrote in another format.
        Failure: If the description is damaged.
    """
    path = folder / _NAME
    if not path.is_file():
        raise UsageError(f"{folder} holds no run: {_reason(folder)}")
    description, sealed = read_json(path)
    format_ = description.get("format", 1)
    if format_ not in _READABLE:
        raise UsageError(_of_another_format(path, description))
    missing = [key for key in _KEYS if key not in description]
    if format_ == FORMAT and not sealed:
        missing.append("its digest")
    if missing:
        raise Failure(f"{path} says nothing about {', '.join(missing)}: start the run again")
    return description


def read_history(folder: Path) -> History:
    """The results of the finished rounds of the run in a folder.

    Args:
        folder: The folder of one run.

    Raises:
        Failure: If they are not those that were written.
    """
    history = History(folder / HISTORY)
    cleaned = read_description(folder).get(CLEANED)
    if cleaned:
        history.check(*cleaned)
    else:
        Checkpoints(folder).check(history)
    return history


def runs_below(folder: Path) -> list[Path]:
    """Finds the runs in a folder: the folder itself, or all folders of runs below it.

    Raises:
        UsageError: If there is no run.
    """
    found = sorted({path.parent for path in folder.rglob(_NAME)})
    if not found:
        below = " or below it" if folder.is_dir() else ""
        raise UsageError(f"{folder} holds no run: {_reason(folder)}{below}")
    return found


def _reason(folder: Path) -> str:
    return f"there is no {_NAME} in it" if folder.is_dir() else "there is no such folder"


def _of_another_format(path: Path, description: dict[str, Any]) -> str:
    writer = description.get("environment", {}).get("consort", "of another version")
    return (
        f"{path} was written by Consort {writer} in format {description['format']}, and Consort "
        f"{consort.__version__} reads format {FORMAT}: open it with the version that wrote it"
    )
