"""What a server tells about itself while it runs: a file that `consort status` reads."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from consort.core.files import write_file
from consort.deployment.status import read_status
from consort.errors import ClientFailed
from consort.run.observer import Observer

_BEAT = 5.0
_MOST_EVENTS = 100


@dataclass
class Board:
    """Keeps `status.json` up to date; may be told things from several threads."""

    path: Path
    table: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _written: float = field(default=0.0, init=False)

    def begin(self, clients: list[str], **about: Any) -> None:
        """A server starts with these clients; what happened before it is kept."""
        events = read_status(self.path)["events"] if self.path.exists() else []
        blank = {"state": "never seen", "seen": 0.0, "since": time.time()}
        self.table = about | {
            "phase": "starting",
            "clients": {client: dict(blank) for client in clients},
            "events": events,
        }
        self.event("the server starts")

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Shows every few seconds that the server is there."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT):
                self.run()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def run(self, **about: Any) -> None:
        """Something about the run as a whole."""
        with self._lock:
            self.table |= about
            self._write()

    def seen(self, client: str) -> None:
        """A request of this client has come in."""
        with self._lock:
            entry = self.table["clients"].get(client)
            if entry:
                entry["seen"] = time.time()
                self._write(every=1.0)

    def client(self, name: str, state: str) -> None:
        """What a client is doing, if that is news."""
        with self._lock:
            entry = self.table["clients"][name]
            if entry["state"] != state:
                entry |= {"state": state, "since": time.time()}
                self._write()

    def event(self, text: str) -> None:
        """Something a user wants to know later."""
        with self._lock:
            self.table["events"] = [*self.table["events"], [time.time(), text]][-_MOST_EVENTS:]
            self._write()

    def _write(self, every: float = 0.0) -> None:
        now = time.time()
        if now - self._written >= every:
            self._written = now
            write_file(self.path, json.dumps(self.table | {"written": now}, indent=1).encode())


class BoardObserver(Observer):
    """Writes the progress of a run into the status file."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def round_started(self, round: int, calls: int) -> None:  # noqa: ARG002
        """A round begins."""
        self.board.run(round=round)

    def failed(self, error: ClientFailed) -> None:
        """A client failed, and the run goes on without it."""
        self.board.event(f"round {self.board.table.get('round', 0)}: went on without {error}")
