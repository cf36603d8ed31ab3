"""One line per round, for log files and batch jobs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from consort.core.row import Row
from consort.errors import ClientFailed
from consort.run.observer import Observer

_MIB = 2**20


class RoundLines(Observer):
    """Writes one line per round to standard error, at once, so that a log file is never behind.

    Args:
        title: The name of the run, which begins every line.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.rounds = 0
        self.done = 0
        self._about: Mapping[str, Any] = {}

    def described(self, about: Mapping[str, Any]) -> None:
        """Learns which metrics stand for the tasks."""
        self._about = about

    def started(self, first: int, rounds: int) -> None:
        """Says where the run starts."""
        self.rounds, self.done = rounds, first - 1
        if first > 1:
            self.say(f"{self.title}: continued after round {first - 1} of {rounds}")

    def measured(self, round: int, rows: Sequence[Row]) -> None:
        """Says what the round brought."""
        self.done = round
        numbers = summary(rows, self._about)
        units = [f"{numbers.pop(unit):.3g} {unit}" for unit in ("MiB", "s")]
        facts = [f"{name} {value:.4f}" for name, value in numbers.items()] + units
        self.say(", ".join([f"{self.title}: round {round} of {self.rounds}", *facts]))

    def failed(self, error: ClientFailed) -> None:
        """Says which client failed."""
        self.say(f"{self.title}: continued without {error}")

    def finished(self) -> None:
        """Says that the run is complete."""
        self.say(f"{self.title}: finished")

    def say(self, line: str) -> None:
        """Writes a line; override it to show it elsewhere.

        Args:
            line: The line.
        """
        print(line, file=sys.stderr, flush=True)


def summary(rows: Sequence[Row], about: Mapping[str, Any]) -> dict[str, float]:
    """What one round measured, in a few numbers.

    Args:
        rows: The rows of the round.
        about: What `run.json` says; if it says nothing, all metrics are taken.

    Returns:
        The mean over clients of the reported model's metric of each task, on test and validation
        data, then the traffic in MiB and the seconds of the round.
    """
    tasks: Mapping[str, Any] = about.get("tasks", {})
    own = {(task, known["metric"], about["reports"]) for task, known in tasks.items()}
    scores: dict[str, list[float]] = {}
    for row in rows:
        stands = not own or (row.task, row.metric, row.model) in own
        if stands and row.split in ("test", "validation") and not row.part:
            name = row.metric if len(tasks) < 2 else f"{row.task} {row.metric}"
            scores.setdefault(f"{row.split} {name}", []).append(row.value)
    found = {name: fmean(values) for name, values in sorted(scores.items())}
    sent = sum(row.value for row in rows if row.metric in ("bytes_up", "bytes_down"))
    seconds = [row.value for row in rows if row.metric == "seconds" and not row.client]
    return found | {"MiB": sent / _MIB} | {"s": sum(seconds)}
