"""Deletes what finished runs need no more: checkpoints and the states of clients."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from consort.core.files import held, naming
from consort.core.sealed import write_json
from consort.errors import Failure
from consort.run.checkpoints import Checkpoints
from consort.run.folder import CLEANED, HISTORY, read_description
from consort.run.history import History

_STATES = "clients"


@dataclass(frozen=True)
class Leftover:
    """What can be deleted of a run."""

    folder: Path
    """The folder of the run."""
    size: int
    """Bytes that would be free; 0 if there is nothing to delete."""
    unfinished: bool
    """Whether the run must keep everything, since it is not finished."""


def leftover(folder: Path) -> Leftover:
    """Looks what can be deleted of a run; nothing is changed.

    Args:
        folder: The folder of the run.

    Raises:
        UsageError: There is no run in the folder.
    """
    about = read_description(folder)
    if not about.get(CLEANED) and Checkpoints(folder).last < about["rounds"]:
        return Leftover(folder, 0, unfinished=True)
    return Leftover(folder, sum(path.stat().st_size for path in _files(folder)), unfinished=False)


def clean(folder: Path) -> None:
    """Deletes the checkpoints and the clients' states of a finished run; its results stay.

    The digest of the results, which was in the checkpoint, is in `run.json` before anything is
    deleted, so that damage is still noticed.

    Args:
        folder: The folder of the run.

    Raises:
        UsageError: The folder is in use.
        Failure: The run is not finished, or its results or its last checkpoint are damaged.
    """
    with held(folder):
        if leftover(folder).unfinished:
            raise Failure(f"{folder}: the run is not finished, so that it keeps everything")
        about = read_description(folder)
        if not about.get(CLEANED):
            sealed = Checkpoints(folder).seal_of(History(folder / HISTORY))
            write_json(folder / "run.json", about | {CLEANED: sealed})
        for path in _files(folder):
            with naming(path, "deleted"):
                path.unlink()
        shutil.rmtree(folder / _STATES, ignore_errors=True)


def _files(folder: Path) -> list[Path]:
    states = [path for path in (folder / _STATES).rglob("*") if path.is_file()]
    return [*folder.glob("round-*.ckpt"), *states, *folder.glob("*.tmp")]
