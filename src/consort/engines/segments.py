"""Files with the states of many clients, one after the other; none is ever changed.

With a file for each state, thousands of clients would mean thousands of files to wait for at the
end of a round. Here every process writes the states of a round to a file of its own.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from consort.core.files import append_file, digest_of, naming, read_part
from consort.errors import Failure

_FULL = 4 << 20  # bytes after which a new file is begun, so that large states do not share one
_SUFFIX = ".states"
_OLD_SUFFIX = ".state"
_OLD_DIGEST = 16


class Place(NamedTuple):
    """Where a state is, and the digest that tells whether it is the right one."""

    file: str
    offset: int
    length: int
    digest: str


class Segments:
    """The files in a folder.

    Args:
        folder: The folder; it is created with the first state.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._round = self._part = self._size = 0

    def append(self, round_: int, data: bytes) -> Place:
        """Writes a state, which is durable only after the file is synced.

        Args:
            round_: The round of the run.
            data: The encoded state.

        Returns:
            Where the state is.

        Raises:
            Failure: If it cannot be written.
        """
        if round_ != self._round:
            self._round, self._part, self._size = round_, 0, 0
        elif self._size >= _FULL:
            self._part, self._size = self._part + 1, 0
        name = f"{round_:06d}-{os.getpid()}-{self._part}{_SUFFIX}"
        offset = append_file(self.folder / name, data, durable=False)
        self._size = offset + len(data)
        return Place(name, offset, len(data), digest_of(data))

    def read(self, place: Place, client: str) -> bytes:
        """Reads a state.

        Args:
            place: Where it is.
            client: The name of its client, for the error message.

        Raises:
            Failure: If it is missing or damaged.
        """
        data = read_part(self.folder / place.file, place.offset, place.length)
        if digest_of(data) != place.digest:
            # With an older state in its place, the results would differ silently.
            raise Failure(
                f"{self.folder / place.file} is damaged: the state of {client} cannot be read; "
                "start the run again in a new folder"
            )
        return data

    def check(self, places: Mapping[str, Place]) -> None:
        """Checks that the files of states are there and long enough, without reading them.

        Args:
            places: Where the state of each client is.

        Raises:
            Failure: If a file is missing or too short.
        """
        sizes: dict[str, int] = {}
        for client, place in places.items():
            if place.file not in sizes:
                path = self.folder / place.file
                sizes[place.file] = path.stat().st_size if path.is_file() else -1
            if sizes[place.file] < place.offset + place.length:
                raise Failure(
                    f"{self.folder / place.file} is missing or was cut short: the state of "
                    f"{client} is gone; start the run again in a new folder"
                )

    def delete(self, name: str) -> None:
        """Deletes a file, if it is there."""
        path = self.folder / name
        with naming(path, "deleted"):
            path.unlink(missing_ok=True)

    def delete_all_but(self, names: Collection[str]) -> None:
        """Deletes all files with states except those that are named.

        Args:
            names: What is kept.
        """
        for pattern in (f"*{_SUFFIX}", f"*/*{_OLD_SUFFIX}"):
            for path in self.folder.glob(pattern):
                name = str(path.relative_to(self.folder))
                if name not in names:
                    self.delete(name)

    def of_version_0_1(self) -> Iterator[tuple[str, tuple[int, int], Place]]:
        """Yields client, time and place of the states that version 0.1 wrote, one to a file."""
        found = []
        for path in self.folder.glob(f"*/*{_OLD_SUFFIX}"):
            round_, step = path.stem.split("-")
            found.append((path.parent.name, (int(round_), int(step)), path))
        for client, stamp, path in sorted(found):
            digest = read_part(path, 0, _OLD_DIGEST).hex()
            size = max(path.stat().st_size - _OLD_DIGEST, 0)
            name = str(path.relative_to(self.folder))
            yield client, stamp, Place(name, _OLD_DIGEST, size, digest)
