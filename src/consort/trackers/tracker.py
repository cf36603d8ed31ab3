"""What all trackers have in common: settings once, then a few numbers per round."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from consort.core.row import Row
from consort.errors import UsageError
from consort.run.observer import Observer
from consort.run.round_lines import summary


class Tracker(Observer):
    """The base class of trackers: it is told the settings, then the numbers of every round.

    The numbers are those that log lines have: means over clients of every task's metric, the
    traffic and the time. What a tracker had of rounds that are repeated is overwritten or repeated,
    as the tracker has it; the history in the run's folder is what counts.

    Args:
        folder: The folder of the run.
        root: The folder of all runs.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        self._about: Mapping[str, Any] = {}

    def described(self, about: Mapping[str, Any]) -> None:
        """Keeps the settings until the run starts."""
        self._about = about

    def started(self, first: int, rounds: int) -> None:  # noqa: ARG002
        """Opens the tracker; a run that is complete does not."""
        name = f"{self._about['algorithm']}, seed {self._about['seed']}"
        title = str(self._about.get("title") or self.root.name)
        self.open(title, name, flat(_settings(self._about)), first)

    def measured(self, round: int, rows: Sequence[Row]) -> None:
        """Passes on the numbers of a round."""
        numbers = summary(rows, self._about)
        self.log(round, {name.replace(" ", "/", 1): value for name, value in numbers.items()})

    def finished(self) -> None:
        """Closes the tracker."""
        self.close()

    @abstractmethod
    def open(self, title: str, name: str, settings: Mapping[str, Any], first: int) -> None:
        """Opens the tracker.

        Args:
            title: The title of the experiment.
            name: The name of the run.
            settings: Its settings, each a plain value under a name such as `run.rounds`.
            first: The round with which it begins.
        """

    @abstractmethod
    def log(self, round: int, numbers: Mapping[str, float]) -> None:
        """Passes on the numbers of a round.

        Args:
            round: The round.
            numbers: By name, such as `test/accuracy`.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the tracker, also if it was never opened."""


def needed(module: str, extra: str) -> Any:
    """A module of an optional package.

    Args:
        module: The module.
        extra: The extra of Consort that brings it.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError:
        raise UsageError(
            f"--log {extra} needs another package: pip install 'fedconsort[{extra}]'"
        ) from None


def flat(tree: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Nested settings as one table with names such as `run.rounds`.

    Args:
        tree: The settings.
        place: The name of this part in a larger one.
    """
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{place}.{key}" if place else str(key)
        if isinstance(value, Mapping):
            found |= flat(value, name)
        elif value is not None and value != []:
            found[name] = value if isinstance(value, str | int | float | bool) else str(value)
    return found


def _settings(about: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the numbers of this run, without other algorithms and scales of the recipe."""
    recipe = dict(about["recipe"])
    for key in ("scales", "claims", "published", "about", "title", "seeds"):
        recipe.pop(key, None)
    own = recipe.pop("algorithms", {}).get(about["algorithm"], {})
    run = {key: about[key] for key in ("algorithm", "kind", "seed", "partition")}
    return {**run, **recipe, "options": own}
