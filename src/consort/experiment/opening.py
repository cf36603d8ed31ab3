"""A run that is looked at: nothing in its folder changes, whatever is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from consort.errors import Failure, UsageError
from consort.experiment.allocation import Seat, seats_of
from consort.experiment.assembly import assemble, run_of
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import refuse_python, written_recipe
from consort.results.result import Result
from consort.run.folder import CLEANED, read_description
from consort.run.run import Run


def open_run(where: Path | Run) -> OpenedRun:
    """A run, finished or not, to be read.

    Args:
        where: The folder of the run; or the run itself, if it was made in Python.

    Raises:
        UsageError: There is no run in the folder, or the run has no folder.
        Failure: Its description is damaged.
    """
    if isinstance(where, Path):
        return OpenedRun(where, read_description(where))
    if where.folder is None:
        raise UsageError("the run keeps nothing: give it a folder, as in Run(…, folder=…)")
    return OpenedRun(where.folder, read_description(where.folder), where)


@dataclass(frozen=True)
class OpenedRun:
    """What a folder tells about its run; data and models are loaded only when they are asked for.

    `run` raises `UsageError` if it was one of `consort server`, whose clients are elsewhere, or was
    made in Python and is not given, and `Failure` if the data are no longer those of the run.
    """

    folder: Path
    about: Mapping[str, Any]
    """What `run.json` says."""
    given: Run | None = None
    """The run itself, if it was made in Python in this session."""

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe of the run."""
        return written_recipe(self.about["recipe"], str(self.folder / "run.json"))

    @cached_property
    def result(self) -> Result:
        """What was measured so far."""
        return Result.load(self.folder)

    @cached_property
    def seats(self) -> dict[str, Seat]:
        """Which data every client of the recipe holds; nothing for a run made in Python."""
        if self.given:
            return {}
        return seats_of(self.recipe, self.about["seed"], self._data)

    @cached_property
    def run(self) -> Run:
        """The run with its clients, its algorithm and what it saved; only its `go` would write."""
        if self.about.get(CLEANED):
            raise Failure(f"{self.folder} was cleaned: its models and checkpoints are deleted")
        if self.given:
            return self.given
        refuse_python(self.folder, self.about)
        if self.about.get("engine") == "flower":
            raise UsageError(f"{self.folder} is a run of consort server: its clients are elsewhere")
        assembly = assemble(self.recipe, self.about["seed"], self._data)
        if assembly.description["partition"] != self.about["partition"]:
            raise Failure(f"{self.folder}: the data are not those of the run any more")
        return run_of(self.recipe, self.about["algorithm"], assembly.federation, self.folder)

    @property
    def _data(self) -> Path | None:
        return Path(self.about["data"]) if self.about["data"] else None
