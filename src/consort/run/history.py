"""The results of a run as one long table, written so that a crash loses no finished round."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

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
        with self.path.open("ab") as file:
            file.write("".join(map(_line, self._waiting)).encode())
            file.flush()
            os.fsync(file.fileno())
            self._waiting.clear()
            return file.tell()

    def cut(self, length: int) -> None:
        """Removes pending rows and everything after a length.

        Args:
            length: A length that `flush` returned.

        Raises:
            Failure: If the file is shorter than that.
        """
        self._waiting.clear()
        if self.path is None:
            del self._rows[length:]
            return
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < length:
            raise Failure(f"{self.path} was cut short: results of finished rounds are missing")
        if size > length:
            with self.path.open("r+b") as file:
                file.truncate(length)

    def __iter__(self) -> Iterator[Row]:
        if self.path is None:
            yield from self._rows
        elif self.path.exists():
            yield from _read(self.path)


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


def _read(path: Path) -> Iterable[Row]:
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = Row(**json.loads(line))
            if not _is_row(row):
                raise ValueError("another type")
            yield row
        except (ValueError, TypeError) as error:
            if number == len(lines):
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
