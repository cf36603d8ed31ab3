"""Tables and journals that carry digests of themselves, so that damage is noticed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from consort.core.files import append_file, cut_file, digest_of, naming, sync_file, write_file
from consort.errors import Failure

Mark = tuple[int, str]
"""The length of a journal and the digest of what it holds up to there."""
EMPTY: Mark = (0, "")
"""The mark of an empty journal."""

_SEAL = "digest"


def write_json(path: Path, table: Mapping[str, Any]) -> None:
    """Writes a table as JSON with a digest as its last key, for `read_json`.

    Args:
        path: The file.
        table: What JSON can hold.
    """
    plain = json.loads(json.dumps({key: table[key] for key in table if key != _SEAL}))
    write_file(path, json.dumps(plain | {_SEAL: _canonical(plain)}, indent=1).encode())


def read_json(path: Path) -> tuple[dict[str, Any], bool]:
    """Reads a table that `write_json` wrote.

    Args:
        path: The file.

    Returns:
        The table, and whether there was a digest: older versions wrote none.

    Raises:
        Failure: If the file is missing or damaged, or cannot be read.
    """
    with naming(path, "read"):
        content = path.read_bytes()
    damaged = f"{path} is damaged or was changed: start the run again in a new folder"
    try:
        table = json.loads(content)
        seal = table.pop(_SEAL, None)
    except (ValueError, TypeError, AttributeError) as error:
        raise Failure(damaged) from error
    if seal is not None and seal != _canonical(table):
        raise Failure(damaged)
    return table, seal is not None


def _canonical(table: Mapping[str, Any]) -> str:
    return digest_of(json.dumps(table, sort_keys=True, separators=(",", ":")).encode())


class Journal:
    """A file to which entries are added; each line has a digest of itself and of all before it.

    Args:
        path: The file; it is created with the first entry.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mark = EMPTY
        """The end of what is known to be sound; what follows it is removed before more is added."""
        self._clean = False

    def replay(self, mark: Mark | None = None) -> Iterator[Any]:
        """Yields the entries from the start.

        Args:
            mark: Where to stop; the entries up to there must be sound. Without it, all entries up
                to the first that is not sound, as after a crash.

        Raises:
            Failure: If the entries up to the mark are not those that were written.
        """
        self.mark, self._clean = EMPTY, False
        if mark is None and not self.path.exists():
            return
        if mark != EMPTY:
            with naming(self.path, "read"), self.path.open("rb") as file:
                for line in file:
                    entry = self._accept(line)
                    if entry is None:
                        break
                    yield entry
                    if self.mark == mark:
                        break
        if mark is not None and self.mark != mark:
            raise Failure(
                f"{self.path} is damaged or an older one: start the run again in a new folder"
            )

    def cut(self) -> None:
        """Removes what follows the last entry that `replay` yielded or `append` added."""
        if self.path.exists() and self.path.stat().st_size != self.mark[0]:
            cut_file(self.path, self.mark[0])
        self._clean = True

    def append(self, entry: Any) -> None:
        """Adds an entry; `sync` makes it durable.

        Args:
            entry: What JSON can hold.

        Raises:
            Failure: If the file cannot be written.
        """
        if not self._clean:
            self.cut()
        text = json.dumps(entry, separators=(",", ":"))
        digest = digest_of(f"{self.mark[1]}{text}".encode())
        line = f"{digest} {text}\n".encode()
        append_file(self.path, line, durable=False)
        self.mark = (self.mark[0] + len(line), digest)

    def sync(self) -> None:
        """Waits until all entries are on the disk; the name of the file is not looked after.

        Raises:
            Failure: If they cannot be written there.
        """
        sync_file(self.path)

    def _accept(self, line: bytes) -> Any:
        """The entry on the next line, or None if the line is not sound."""
        digest, _, text = line.decode("utf-8", "replace").partition(" ")
        if not text.endswith("\n") or digest != digest_of(f"{self.mark[1]}{text[:-1]}".encode()):
            return None
        self.mark = (self.mark[0] + len(line), digest)
        return json.loads(text)
