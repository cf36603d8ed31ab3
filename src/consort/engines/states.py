"""What clients remember between calls, stored with the time at which it was written.

On disk, states are in the files of `consort.engines.segments`, and a journal says which state of
which client is where, with its digest. A checkpoint counts on the journal up to a mark: a state
that is missing, damaged or an older one is noticed and never used.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from pathlib import Path

from consort.core.files import sync_file, sync_folder
from consort.core.limits import OWN
from consort.core.messages import State
from consort.core.sealed import EMPTY, Journal, Mark
from consort.core.wire import decode, encode
from consort.engines.segments import Place, Segments
from consort.errors import Failure, Tellable

Stamp = tuple[int, int]
"""(round, step): a time within a run."""

_JOURNAL = "states.jsonl"
_NOTHING = Place("", 0, 0, "")
_START: Stamp = (0, 0)  # before all calls
_Kept = dict[str, dict[Stamp, bytes | Place]]


class StateStore:
    """Stores every client's state with the time at which it was written.

    A call at (round, step) reads what was written strictly before, so a round that is repeated
    after a crash finds the same state as the first time. The states of the last two earlier rounds
    are kept.

    Args:
        folder: Where states are stored; without it, they are kept in memory.
        mark: Only what the journal holds up to here counts, which `commit` returned; without it,
            all that was written.
    """

    def __init__(self, folder: Path | None = None, mark: Mark | None = None) -> None:
        self.folder = folder
        self._mark = mark
        self._used: Counter[str] = Counter()
        """How many of the states are in each file."""
        self._unsynced: set[str] = set()
        """The files that `commit` has to wait for; an empty name stands for the journal alone."""

    def load(self, client: str, before: Stamp) -> State:
        """Loads the newest state that was written before a time.

        Args:
            client: The client's name.
            before: The time.

        Returns:
            The state; an empty one if there is none.

        Raises:
            Failure: If the state is missing or damaged.
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
            Failure: If the state is missing or damaged.
        """
        found = self.find(client, before)
        return self._segments.read(found, client) if isinstance(found, Place) else found

    def find(self, client: str, before: Stamp) -> bytes | Place:
        """Like `read`, but says where the state is if it is on disk.

        Args:
            client: The client's name.
            before: The time.

        Returns:
            The encoded state or its place; empty if there is none.
        """
        kept = self._kept.get(client, {})
        found = kept[max(stamps)] if (stamps := [s for s in kept if s < before]) else b""
        return b"" if found == _NOTHING else found

    def save(self, client: str, stamp: Stamp, state: State) -> None:
        """Stores a state, and forgets those that resuming the run cannot need any more.

        Args:
            client: The client's name.
            stamp: The time at which the state is written.
            state: The state.
        """
        self.write(client, stamp, encode(state))

    def write(self, client: str, stamp: Stamp, state: bytes | Place) -> None:
        """Like `save`, for a state that is already encoded.

        Args:
            client: The client's name.
            stamp: The time at which the state is written.
            state: The encoded state, or its place if a worker has written it already.
        """
        kept = self._kept
        if isinstance(state, bytes) and self.folder:
            state = self._segments.append(stamp[0], state)
        if isinstance(state, Place):
            self._journal.append([client, *stamp, *state])
            self._unsynced.add(state.file)
        self._enter(kept, client, stamp, state)

    def forget_after(self, client: str, stamp: Stamp | None) -> None:
        """Forgets the states of a client that were written after a time.

        Args:
            client: The client's name.
            stamp: The time; None forgets all of the client's states.
        """
        after = stamp or _START
        if any(known > after for known in self._kept.get(client, ())):
            if self.folder:
                self._journal.append([client, *after])
                self._unsynced.add("")
            self._forget(self._kept, client, after)

    # What a run and its clients count on after a crash

    def commit(self) -> Mark:
        """Makes all states durable, and deletes the files that hold none of them any more.

        Returns:
            What a checkpoint has to remember, for `rewind`.

        Raises:
            Failure: If something cannot be written.
        """
        if self.folder is None:
            return EMPTY
        if self._unsynced:
            paths = [self.folder / name for name in sorted(self._unsynced) if name]
            for path in paths:
                sync_file(path)
            self._journal.sync()
            for folder in {self.folder, *(path.parent for path in paths)}:
                sync_folder(folder)
            self._unsynced.clear()
        for name in [name for name, states in self._used.items() if not states]:
            self._segments.delete(name)
            del self._used[name]
        return self._journal.mark

    def rewind(self, mark: Mark | None, round_: int) -> None:
        """Goes back to the states that a checkpoint counts on, and deletes all others.

        Args:
            mark: What `commit` returned for the checkpoint; None if it is from version 0.1, which
                had one file for each state, or if there is no checkpoint.
            round_: The round of the checkpoint; 0 if there is none.

        Raises:
            Failure: If a state is missing, or the journal is not the one that was written.
        """
        if self.folder is None:
            self._kept = {}
            return
        self._mark = EMPTY if mark is None else mark
        self.__dict__.pop("_kept", None)
        kept = self._kept
        self._journal.cut()
        if mark is None:
            for client, stamp, place in self._segments.of_version_0_1():
                if stamp[0] <= round_:
                    self.write(client, stamp, place)
        newest = {client: self.find(client, (round_ + 1, 0)) for client in kept}
        self._segments.check({c: p for c, p in newest.items() if isinstance(p, Place)})
        self._segments.delete_all_but(self._used.keys())

    def answered(self, client: str, stamp: Stamp) -> None:
        """Records durably that a client has answered a call, whether its state changed or not.

        Args:
            client: The client's name.
            stamp: The time of the call.

        Raises:
            Failure: If that cannot be written.
        """
        if stamp not in self._kept.get(client, ()):
            self.write(
                client, stamp, self.find(client, stamp) or (_NOTHING if self.folder else b"")
            )
        self.commit()

    def go_back(self, client: str, stamp: Stamp | None) -> None:
        """Goes back to what a client kept after the last of its answers that counts.

        Args:
            client: The client's name.
            stamp: The time of the call; None if no answer counts so far.

        Raises:
            Tellable: If there is no record of that answer: the state is gone or an older one.
        """
        if stamp is not None and stamp not in self._kept.get(client, ()):
            raise Tellable(
                f"the state of {client} after round {stamp[0]} is missing, or an older one was put "
                "in its place: start the run again in a new --out"
            )
        self.forget_after(client, stamp)

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self._segments.folder / _JOURNAL)

    @cached_property
    def _segments(self) -> Segments:
        if self.folder is None:
            raise Failure("states in memory are in no file")
        return Segments(self.folder)

    @cached_property
    def _kept(self) -> _Kept:
        """What is known of every client: its states, or where they are."""
        kept: _Kept = {}
        if self.folder is None:
            return kept
        self._used.clear()
        for client, round_, step, *place in self._journal.replay(self._mark):
            if place:
                self._enter(kept, client, (round_, step), Place(*place))
            else:
                self._forget(kept, client, (round_, step))
        if self._mark is None and not self._journal.path.exists():
            for client, stamp, found in self._segments.of_version_0_1():
                self._enter(kept, client, stamp, found)
        return kept

    def _enter(self, all_kept: _Kept, client: str, stamp: Stamp, state: bytes | Place) -> None:
        """Adds a state; those after it, and those of too early rounds, are no longer known."""
        kept = all_kept.setdefault(client, {})
        if stamp in kept:
            self._leave(kept[stamp])
        kept[stamp] = state
        if isinstance(state, Place) and state.file:
            self._used[state.file] += 1
        self._forget(all_kept, client, stamp)
        earlier = sorted({round_ for round_, _ in kept if round_ < stamp[0]})[-2:]
        for old in [s for s in kept if s[0] < stamp[0] and s[0] not in earlier]:
            self._leave(kept.pop(old))

    def _forget(self, all_kept: _Kept, client: str, after: Stamp) -> None:
        kept = all_kept.get(client, {})
        for later in [stamp for stamp in kept if stamp > after]:
            self._leave(kept.pop(later))

    def _leave(self, state: bytes | Place) -> None:
        if isinstance(state, Place) and state.file:
            self._used[state.file] -= 1
