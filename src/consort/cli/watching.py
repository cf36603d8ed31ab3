"""Who is told how the runs of a command proceed: the screen, a log file, trackers."""

from __future__ import annotations

from pathlib import Path

from consort.cli.show import Screen
from consort.run.json_lines import JsonLines
from consort.run.observer import Observer, Observers
from consort.trackers.choice import check_trackers, trackers


class Watching:
    """The observers of all runs of a command.

    Args:
        names: Trackers, separated by commas.
        log_file: A file for JSON lines, if any.
        root: The folder of all runs.

    Raises:
        UsageError: There is no such tracker, or it is not installed.
    """

    def __init__(self, names: str, log_file: Path | None, root: Path) -> None:
        self.names = [name.strip() for name in names.split(",") if name.strip()]
        self.log_file, self.root = log_file, root
        check_trackers(self.names)

    def of(self, screen: Screen, name: str, seed: int, rounds: int, folder: Path) -> Observer:
        """The observers of one run.

        Args:
            screen: Shows the progress.
            name: The algorithm.
            seed: The seed.
            rounds: The number of rounds planned.
            folder: The folder of the run.
        """
        lines = [JsonLines(self.log_file, name, seed)] if self.log_file else []
        shown = screen.watch(name, seed, rounds)
        return Observers(shown, *lines, *trackers(self.names, folder, self.root))
