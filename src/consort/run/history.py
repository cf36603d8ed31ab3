"""The results of a run as one long table, written so that a crash loses no finished round."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from consort.core.files import append_file, cut_file, naming, running_digest
from consort.core.row import Row
from consort.errors import Failure


class History:
    """The rows of one run; iterating over it yields those that are written.

    Args:
        path: A file of JSON lines; None keeps the rows in memory.

    Examples:
        >>> from consort import History
        >>> from consort.core.row import Row
        >>> history = History()
        >>> history.add(Row(1, "accuracy", 0.9, client="bank-1", split="test"))
        >>> history.flush()
        1
        >>> [(row.client, row.value) for row in history if row.metric == "accuracy"]
        [('bank-1', 0.9)]
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._rows: list[Row] = []
        self._waiting: list[Row] = []
        self._sum: hashlib.blake2b | None = None
        self._end: int | None = None

    def add(self, row: Row) -> None:
        """Adds a row, which is written at the next `flush`.

        Args:
            row: The row.
        """
        self._waiting.append(row)

    @property
    def pending(self) -> tuple[Row, ...]:
        """The rows that are written at the next `flush`."""
        return tuple(self._waiting)

    def flush(self) -> int:
        """Writes the pending rows.

        Returns:
            The length of the history: bytes of the file, or rows in memory.
        """
        if self.path is None:
            self._rows += self._waiting
            self._waiting.clear()
            return len(self._rows)
        data = "".join(map(_line, self._waiting)).encode()
        written = self._sum or running_digest(self.path, self._size)
        start = append_file(self.path, data)
        written.update(data)
        self._sum = written
        self._waiting.clear()
        return start + len(data)

    @property
    def digest(self) -> str:
        """The digest of all that was written to the file; empty for a history in memory."""
        return self._sum.hexdigest() if self._sum else ""

    def check(self, length: int, digest: str) -> None:
        """Checks that the file begins with what was written; only that much of it is read then.

        Args:
            length: A length that `flush` returned.
            digest: The digest at that time.

        Raises:
            Failure: If something is missing or was changed.
        """
        if self.path is None:
            return
        if self._size < length:
            raise Failure(
                f"{self.path} was cut short: results of finished rounds are missing; start the "
                "run again in a new folder"
            )
        self._sum = running_digest(self.path, length)
        if self._sum.hexdigest() != digest:
            deque(_read(self.path, length))  # which may know the line
            raise Failure(
                f"{self.path} is damaged: results of finished rounds were changed; start the run "
                "again in a new folder"
            )
        self._end = length

    def cut(self, length: int, digest: str = "") -> None:
        """Removes pending rows and everything after a length.

        Args:
            length: A length that `flush` returned.
            digest: The digest at that time; without it, only the length is checked.

        Raises:
            Failure: If the file is shorter than that, or what is left of it was changed.
        """
        self._waiting.clear()
        if self.path is None:
            del self._rows[length:]
            return
        if digest or self._size < length:
            self.check(length, digest)
        else:
            self._sum = running_digest(self.path, length)
        self._end = None
        if self._size > length:
            cut_file(self.path, length)

    def __iter__(self) -> Iterator[Row]:
        if self.path is None:
            yield from self._rows
        elif self.path.exists():
            yield from _read(self.path, self._end)

    @property
    def _size(self) -> int:
        return self.path.stat().st_size if self.path and self.path.exists() else 0


_TEXTS = ("client", "task", "split", "model", "part")
_quoted = lru_cache(maxsize=1 << 16)(json.dumps)


def _line(row: Row) -> str:
    """One row as JSON, formatted by hand because large federations have many rows per round."""
    if not _is_row(row):
        raise Failure(f"{row.metric!r:.100} of {row.client!r:.100} is not a number of a round")
    round_, metric, value, *texts, n = row
    what = f'"metric":{_quoted(metric)},"value":{json.dumps(value)}'
    for name, text in zip(_TEXTS, texts, strict=True):
        if text:
            what += f',"{name}":{_quoted(text)}'
    return f'{{"round":{round_},{what},"n":{n}}}\n'


def _read(path: Path, length: int | None = None) -> Iterable[Row]:
    with naming(path, "read"):
        content = path.read_bytes()[:length]
    lines = content.decode("utf-8", "replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = Row(**json.loads(line))
            if not _is_row(row):
                raise ValueError("another type")
            yield row
        except (ValueError, TypeError) as error:
            if number == len(lines) and length is None:
                return  # the run was killed while writing this line
            raise Failure(f"{path}, line {number}: not a row of results") from error


def _is_row(row: Row) -> bool:
    """Whether all fields have their types: what is written is read by every report."""
    round_, metric, value, *texts, n = row
    return (
        type(round_) is int
        and type(n) is int
        and isinstance(value, int | float)
        and isinstance(metric, str)
        and all(isinstance(text, str) for text in texts)
    )
