"""What clients remember between calls, written under the time it was written."""

from __future__ import annotations

import os
from pathlib import Path

from consort.core.files import read_checked, write_checked
from consort.core.messages import State
from consort.core.wire import decode, encode
from consort.errors import Failure

Stamp = tuple[int, int]
"""(round, step): when in a run something was written."""


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
            return read_checked(path)
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
            write_checked(self._path(client, stamp), data)
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
