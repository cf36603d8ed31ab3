"""What happens in runs, as JSON lines in a file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from consort.core.row import Row
from consort.errors import ClientFailed, Failure
from consort.run.observer import Observer
from consort.run.round_lines import summary


class JsonLines(Observer):
    """Adds one JSON object per event to a file, each with the time, the algorithm and the seed.

    Every line is on its way to the disk before the run goes on, so that others can follow the file.

    Args:
        path: The file; it is created if it does not exist.
        algorithm: The name of the algorithm.
        seed: The seed of the run.

    Raises:
        Failure: The file cannot be written.
    """

    def __init__(self, path: Path, algorithm: str, seed: int) -> None:
        self.path = path
        self._run = {"algorithm": algorithm, "seed": seed}
        self._about: Mapping[str, Any] = {}

    def described(self, about: Mapping[str, Any]) -> None:
        """Learns which metrics stand for the tasks."""
        self._about = about

    def started(self, first: int, rounds: int) -> None:
        """Writes with which round the run begins or goes on."""
        self._write("started", round=first, rounds=rounds)

    def measured(self, round: int, rows: Sequence[Row]) -> None:
        """Writes what the round measured."""
        self._write("round", round=round, **summary(rows, self._about))

    def failed(self, error: ClientFailed) -> None:
        """Writes which client failed and why."""
        self._write("failed", client=error.client, reason=error.reason)

    def finished(self) -> None:
        """Writes that the run is complete."""
        self._write("finished")

    def _write(self, event: str, **facts: Any) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        facts = {name.replace(" ", "_"): value for name, value in facts.items()}
        line = json.dumps({"time": time, "event": event, **self._run, **facts})
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise Failure(f"{self.path}: the log cannot be written: {error.strerror}") from error
