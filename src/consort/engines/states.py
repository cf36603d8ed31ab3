"""What clients remember between calls, stored with the time at which it was written."""

from __future__ import annotations

import os
from pathlib import Path

from consort.core.files import read_checked, write_checked
from consort.core.limits import OWN
from consort.core.messages import State
from consort.core.wire import decode, encode
from consort.errors import Failure

Stamp = tuple[int, int]
"""(round, step): a time within a run."""


class StateStore:
    """Stores every client's state with the time at which it was written.

    A call at (round, step) reads what was written strictly before, so a round that is repeated
    after a crash finds the same state as the first time. The states of the last two earlier rounds
    are kept.

    Args:
        folder: Where states are stored; without it, they are kept in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._memory: dict[str, dict[Stamp, bytes]] = {}

    def load(self, client: str, before: Stamp) -> State:
        """Loads the newest state that was written before a time.

        Args:
            client: The client's name.
            before: The time.

        Returns:
            The state; an empty one if there is none.

        Raises:
            Failure: If the file is damaged.
        """
        data = self.read(client, before)
        state: State = decode(data, limits=OWN) if data else {}
        return state

    def read(self, client: str, before: Stamp) -> bytes:
        """Like `load`, but returns the encoded state, to be sent to another process.

        Args:
            client: The client's name.
            before: The time.

        Returns:
            The encoded state; empty if there is none.

        Raises:
            Failure: If the file is damaged.
        """
        stamps = [stamp for stamp in self._stamps(client) if stamp < before]
        if not stamps:
            return b""
        if self.folder is None:
            return self._memory[client][max(stamps)]
        path = self._path(client, max(stamps))
        try:
            return read_checked(path)
        except Failure as error:
            # With an older state in its place, the results would differ silently.
            raise Failure(f"{path} is damaged: start the run again in a new folder") from error

    def save(self, client: str, stamp: Stamp, state: State) -> None:
        """Stores a state, and deletes those that resuming the run cannot need any more.

        Args:
            client: The client's name.
            stamp: The time at which the state is written.
            state: The state.
        """
        self.write(client, stamp, encode(state))

    def write(self, client: str, stamp: Stamp, data: bytes) -> None:
        """Like `save`, for a state that is already encoded.

        Args:
            client: The client's name.
            stamp: The time at which the state is written.
            data: The encoded state.
        """
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
        """Deletes the states of a client that were written after a time.

        Args:
            client: The client's name.
            stamp: The time; None deletes all of the client's states.
        """
        for later in self._stamps(client):
            if stamp is None or later > stamp:
                self._delete(client, later)

    def _stamps(self, client: str) -> list[Stamp]:
        if self.folder is None:
            return list(self._memory.get(client, ()))
        folder = f"{self.folder}/{client}"  # no Path, for speed: this runs once per call
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
