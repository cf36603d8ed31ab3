"""Writes the status of a running server to a file that `consort status` reads."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consort.core.files import write_file
from consort.deployment.logs import log
from consort.deployment.status import is_connected, read_status
from consort.errors import ClientFailed
from consort.run.observer import Observer

_INTERVAL = 5.0  # seconds between two signs of life
_MOST_EVENTS = 100


@dataclass
class StatusFile:
    """Keeps `status.json` up to date; its methods may be called from several threads."""

    path: Path
    table: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _written: float = field(default=0.0, init=False)

    def begin(self, clients: list[str], **about: Any) -> None:
        """Starts a new status; events of an earlier server in the same folder are kept.

        Args:
            clients: The names of the clients.
            about: Facts about the run, such as `algorithm` and `rounds`.
        """
        events = read_status(self.path)["events"] if self.path.exists() else []
        blank = {"state": "never seen", "seen": 0.0, "since": time.time()}
        self.table = about | {
            "phase": "starting",
            "clients": {client: dict(blank) for client in clients},
            "events": events,
        }
        self.event("the server started")

    @contextmanager
    def alive(self) -> Iterator[None]:
        """A context in which the file is updated every few seconds."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_INTERVAL):
                self.run()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def run(self, **about: Any) -> None:
        """Updates facts about the run as a whole."""
        with self._lock:
            self.table |= about
            self._write()
        if "phase" in about:
            log("phase", phase=about["phase"])

    def seen(self, client: str) -> None:
        """Records that a client has just sent a request."""
        with self._lock:
            entry = self.table["clients"].get(client)
            if entry:
                entry["seen"] = time.time()
                self._write(every=1.0)

    def client(self, name: str, state: str) -> None:
        """Updates the state of a client."""
        with self._lock:
            entry = self.table["clients"][name]
            if entry["state"] != state:
                entry |= {"state": state, "since": time.time()}
                self._write()
                log("client_state", client=name, state=state.partition(":")[0])

    def states(self) -> tuple[dict[str, int], int]:
        """How many clients are in each state, without its details, and how many are connected."""
        with self._lock:
            clients = [dict(entry) for entry in self.table.get("clients", {}).values()]
        now = time.time()
        counts = Counter(str(client["state"]).partition(":")[0] for client in clients)
        return dict(counts), sum(is_connected(client, now) for client in clients)

    def event(self, text: str) -> None:
        """Adds an event, with the current time."""
        with self._lock:
            self.table["events"] = [*self.table["events"], [time.time(), text]][-_MOST_EVENTS:]
            self._write()

    def _write(self, every: float = 0.0) -> None:
        now = time.time()
        if now - self._written >= every:
            self._written = now
            text = json.dumps(self.table | {"written": now}, indent=1)
            write_file(self.path, text.encode(), durable=False)


class StatusObserver(Observer):
    """Records the progress of a run in the status file.

    Args:
        status: The status file.
    """

    def __init__(self, status: StatusFile) -> None:
        self.status = status

    def round_started(self, round: int, calls: int) -> None:  # noqa: ARG002
        """Records the number of the round."""
        self.status.run(round=round)

    def failed(self, error: ClientFailed) -> None:
        """Records the failure of a client as an event."""
        round_ = self.status.table.get("round", 0)
        self.status.event(f"round {round_}: continued without {error}")
