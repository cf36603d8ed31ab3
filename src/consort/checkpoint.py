"""Files that survive a crash: written whole or not at all, and recognised when damaged."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consort.client import State
from consort.errors import Failure, Refused, UsageError
from consort.wire import decode, encode

_DIGEST = 16
Stamp = tuple[int, int]
"""(round, step): when in a run something was written."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """A folder that no other process may hold: two runs in one would mix up their results."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # forked workers do not inherit it
        except (BlockingIOError, PermissionError):
            raise UsageError(
                f"{folder} is in use by another process: wait for it, or choose another --out"
            ) from None
        yield


def write_file(path: Path, data: bytes, durable: bool = False) -> None:
    """Replaces a file in one go, so that a reader finds the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)


def save(path: Path, value: Any, durable: bool = False) -> None:
    """Writes a value with a digest in front."""
    _write(path, encode(value, once=True), durable)


def _write(path: Path, data: bytes, durable: bool = False) -> None:
    write_file(path, _digest(data) + data, durable)


def load(path: Path, records: Mapping[str, type] = {}) -> Any:
    """Reads what `save` wrote; a damaged file is an error that names it."""
    try:
        return decode(_checked(path), records)
    except Refused as error:
        raise Failure(
            f"{path} cannot be read ({error}): it comes from another version of the algorithm"
        ) from error


def _checked(path: Path) -> bytes:
    content = path.read_bytes()
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if digest != _digest(data):
        raise Failure(f"{path} is damaged: delete it to go on from the file before it")
    return data


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


class StateStore:
    """Keeps every client's state under the time it was written.

    A call at (round, step) reads what was written strictly before it, so a round that is run
    again after a crash finds the state it found the first time. Of earlier rounds the last two
    are kept. Without a folder, states are kept in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._memory: dict[str, dict[Stamp, bytes]] = {}

    def load(self, client: str, before: Stamp) -> State:
        """The newest state written before a time, or an empty one."""
        data = self.read(client, before)
        state: State = decode(data) if data else {}
        return state

    def read(self, client: str, before: Stamp) -> bytes:
        """The same as it was written, to be carried elsewhere; nothing if there is none."""
        stamps = [stamp for stamp in self._stamps(client) if stamp < before]
        if not stamps:
            return b""
        if self.folder is None:
            return self._memory[client][max(stamps)]
        path = self._path(client, max(stamps))
        try:
            return _checked(path)
        except Failure as error:
            # Without it an older state would be taken, and the numbers would be others.
            raise Failure(f"{path} is damaged: start the run again in a new folder") from error

    def save(self, client: str, stamp: Stamp, state: State) -> None:
        """Writes a state and forgets those that no resume can need any more."""
        self.write(client, stamp, encode(state))

    def write(self, client: str, stamp: Stamp, data: bytes) -> None:
        """The same for a state that comes from elsewhere, already encoded."""
        if self.folder is None:
            self._memory.setdefault(client, {})[stamp] = data
        else:
            _write(self._path(client, stamp), data)
        stamps = self._stamps(client)
        kept = sorted({earlier[0] for earlier in stamps if earlier[0] < stamp[0]})[-2:]
        for old in stamps:
            if old > stamp or (old[0] < stamp[0] and old[0] not in kept):
                self._delete(client, old)

    def forget_after(self, client: str, stamp: Stamp | None) -> None:
        """Deletes what was written later than a time, or everything."""
        for later in self._stamps(client):
            if stamp is None or later > stamp:
                self._delete(client, later)

    def _stamps(self, client: str) -> list[Stamp]:
        if self.folder is None:
            return list(self._memory.get(client, ()))
        folder = f"{self.folder}/{client}"  # no Path: this is asked once per call
        names = os.listdir(folder) if os.path.isdir(folder) else []  # noqa: PTH112, PTH208
        return [_stamp(name) for name in names if name.endswith(".state")]

    def _path(self, client: str, stamp: Stamp) -> Path:
        return Path(f"{self.folder}/{client}/{stamp[0]}-{stamp[1]}.state")

    def _delete(self, client: str, stamp: Stamp) -> None:
        if self.folder is None:
            del self._memory[client][stamp]
        else:
            self._path(client, stamp).unlink(missing_ok=True)


def _stamp(name: str) -> Stamp:
    round_, step = name.removesuffix(".state").split("-")
    return int(round_), int(step)
