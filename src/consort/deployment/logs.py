"""Structured logs of server and client: events, one JSON object a line.

A line has the fields that `Fields` announces and no others, each a number or a short text. So
neither payloads nor keys get into a log, nor the texts of unexpected errors, which may quote data,
nor, on the server, what clients say of their errors.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Literal, TypedDict, Unpack

from consort.core.messages import Call
from consort.core.row import Row
from consort.engines.middleware import Absent, RefusedReply
from consort.errors import ClientFailed, UsageError
from consort.run.observer import Observer

Event = Literal[
    "phase", "client_state", "run_started", "round_started", "reply", "client_failed", "round_done",
    "run_finished", "stopped",  # of the server
    "connection", "joined", "answered", "late", "refused", "failed",  # of a client
]  # fmt: skip


class Fields(TypedDict, total=False):
    """What an event may say."""

    client: str
    clients: int
    round: int
    rounds: int
    method: str
    algorithm: str
    study: str
    """The first digits of its digest."""
    state: str
    phase: str
    kind: str
    """The kind of an error, in one word."""
    reason: str
    """Why this side refuses: a sentence of its own, for its operator."""
    seconds: float
    bytes: int
    bytes_up: int
    bytes_down: int


FIELDS = tuple(Fields.__annotations__)
_LONGEST = 200  # characters of a text
_LOGGER = logging.getLogger("consort.events")
_LOGGER.propagate = False
_LOGGER.setLevel(logging.INFO)
_LOGGER.addHandler(logging.NullHandler())


def log(event: Event, level: int = logging.INFO, **fields: Unpack[Fields]) -> None:
    """Writes an event to the log, if there is one.

    Args:
        event: The name of the event.
        level: Its level, as in `logging`.
        fields: What it says.

    Raises:
        TypeError: If a field is not one of `Fields`, or neither a text nor a finite number.
    """
    plain = {name: _plain(name, value) for name, value in fields.items()}
    _LOGGER.log(level, event, extra={"fields": plain})


def _plain(name: str, value: object) -> str | int | float:
    if name not in FIELDS:
        raise TypeError(f"a log has no field {name}")
    if isinstance(value, str):
        return value[:_LONGEST]
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    raise TypeError(f"{name} of a log must be a text or a finite number")


@contextmanager
def logging_to(file: Path | None, to_stderr: bool = False) -> Iterator[None]:
    """A context in which events are written.

    A file that was moved away, as logrotate does, is opened anew.

    Args:
        file: The file to which lines are added, readable by its owner only; None for no file.
        to_stderr: Whether they are written to standard error.

    Raises:
        UsageError: If the file cannot be opened.
    """
    with ExitStack() as stack:
        handlers: list[logging.Handler] = []
        if file is not None:
            try:
                handlers.append(_OwnerOnlyFile(file, encoding="ascii"))
            except OSError as error:
                raise UsageError(f"--log-file {file} cannot be opened: {error.strerror}") from error
        if to_stderr:
            handlers.append(logging.StreamHandler(sys.stderr))
        for handler in handlers:
            handler.setFormatter(_JsonLines())
            handler.handleError = _ignore  # type: ignore[method-assign]
            stack.callback(_close, handler)
            _LOGGER.addHandler(handler)
        yield


class LogObserver(Observer):
    """Logs the progress of a run on the server."""

    def started(self, first: int, rounds: int) -> None:
        """Logs the next round and the number of rounds."""
        log("run_started", round=first, rounds=rounds)

    def round_started(self, round: int, calls: int) -> None:
        """Logs the round and how many clients take part."""
        log("round_started", round=round, clients=calls)

    def answered(self, call: Call) -> None:
        """Logs that a client has replied."""
        log("reply", client=call.client, round=call.round, method=call.method)

    def failed(self, error: ClientFailed) -> None:
        """Logs the kind of a failure; its text is the client's."""
        log("client_failed", logging.WARNING, client=error.client, kind=kind_of(error))

    def measured(self, round: int, rows: Sequence[Row]) -> None:
        """Logs the time and the bytes of a round."""
        up, down = (
            sum(int(row.value) for row in rows if row.metric == metric)
            for metric in ("bytes_up", "bytes_down")
        )
        seconds = sum(row.value for row in rows if row.metric == "seconds" and not row.client)
        log("round_done", round=round, seconds=milliseconds(seconds), bytes_up=up, bytes_down=down)

    def finished(self) -> None:
        """Logs that the run is complete."""
        log("run_finished")


def kind_of(error: ClientFailed) -> str:
    """The kind of an `error` in one word: `absent`, `refused` or `failed`."""
    if isinstance(error, Absent):
        return "absent"
    return "refused" if isinstance(error, RefusedReply) else "failed"


def milliseconds(seconds: float) -> float:
    """`seconds`, rounded to milliseconds."""
    return round(seconds, 3)


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        head = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        return json.dumps(head | record.__dict__["fields"])


class _OwnerOnlyFile(WatchedFileHandler):
    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = os.open(self.baseFilename, flags, 0o600)
        return TextIOWrapper(os.fdopen(file, "wb"), encoding=self.encoding)


def _ignore(record: logging.LogRecord) -> None:
    """A full disk or a closed pipe must not stop a run, nor fill the terminal."""


def _close(handler: logging.Handler) -> None:
    _LOGGER.removeHandler(handler)
    if isinstance(handler, _OwnerOnlyFile):
        with suppress(OSError):  # the disk may still be full
            handler.close()
