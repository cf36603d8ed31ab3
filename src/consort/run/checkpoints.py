"""The state of a run after its last rounds, one file for each; the last two are kept."""

from __future__ import annotations

import json
import logging
import struct
from pathlib import Path
from typing import Any

from consort.core import files
from consort.errors import Failure
from consort.run.history import History

_PATTERN = "round-*.ckpt"
_KEPT = 2
_DIGEST = 16  # bytes before the content of a file

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints in the folder of a run.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, round_: int, content: dict[str, Any]) -> None:
        """Writes a checkpoint, and deletes those that are no longer needed.

        Everything that the content counts on must be on the disk before.

        Args:
            round_: The finished round.
            content: What `consort.core.wire.encode` accepts.

        Raises:
            Failure: If it cannot be written; the earlier ones are still there.
        """
        files.save(self.folder / f"round-{round_:06d}.ckpt", content)
        for old in self._paths()[:-_KEPT]:
            with files.naming(old, "deleted"):
                old.unlink()

    def load(self, back: int, records: dict[str, type]) -> dict[str, Any] | None:
        """Reads a checkpoint.

        Args:
            back: 0 for the last one, 1 for the one before it.
            records: The dataclasses that may occur in the content, by name.

        Returns:
            The content; None if there is no such checkpoint.

        Raises:
            Failure: If the checkpoint is damaged, or was written by another version of the
                algorithm.
        """
        found = self._paths()
        if len(found) <= back:
            return None
        content: dict[str, Any] = files.load(found[-1 - back], records)
        return content

    @property
    def last(self) -> int:
        """The last finished round, by the names of the files; 0 if there is none."""
        return max((_round_of(path) for path in self._paths()), default=0)

    def forget_from(self, round_: int) -> None:
        """Deletes the checkpoints of a round and of those after it, so that a run repeats them.

        Args:
            round_: The round.
        """
        for path in self._paths():
            if _round_of(path) >= round_:
                with files.naming(path, "deleted"):
                    path.unlink()
        files.sync_folder(self.folder)

    @property
    def exist(self) -> bool:
        """Whether there is a checkpoint."""
        return bool(self._paths())

    def tidy(self) -> None:
        """Deletes what a crash has left half written."""
        for draft in self.folder.glob("*.tmp"):
            with files.naming(draft, "deleted"):
                draft.unlink()

    def check(self, history: History) -> None:
        """Checks a history against the last sound checkpoint, and limits it to finished rounds.

        Of a checkpoint only the beginning is read, as long as the history fits it. Without a
        checkpoint, or with one of version 0.1, the history is left as it is.

        Args:
            history: The history of the run in a file.

        Raises:
            Failure: If the history is not the one that was written.
        """
        for path in reversed(self._paths()):
            try:
                length, digest = _of_history(path)
                if digest:
                    history.check(length, digest)
                return
            except (Failure, ValueError, LookupError, TypeError, struct.error):
                try:
                    files.read_checked(path)
                except Failure as damage:
                    log.warning("%s; rounds after that file are left out", damage)
                else:
                    raise

    def seal_of(self, history: History) -> tuple[int, str]:
        """The length and the digest of the results, once the checkpoints are deleted.

        Args:
            history: The history of the run in a file.

        Raises:
            Failure: If the last checkpoint is damaged, or the history is not the one it knows.
        """
        path = self._paths()[-1]
        files.read_checked(path)
        length, digest = _of_history(path)
        history.cut(length, digest)
        return length, history.digest

    def _paths(self) -> list[Path]:
        return sorted(self.folder.glob(_PATTERN))


def _round_of(path: Path) -> int:
    return int(path.stem.removeprefix("round-"))


def _of_history(path: Path) -> tuple[int, str]:
    """The length of the history and its digest, from the header of a checkpoint."""
    (length,) = struct.unpack("<Q", files.read_part(path, _DIGEST, 8))
    if length > path.stat().st_size:
        raise ValueError("the header is longer than the file")
    header = json.loads(files.read_part(path, _DIGEST + 8, length))
    content = dict(json.loads(header["__metadata__"]["consort"])["map"])
    return content["history"], content.get("history_digest", "")
