"""Files that survive a crash: written whole or not at all, and recognised when damaged."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consort.core.wire import decode, encode
from consort.errors import Failure, Refused, UsageError

_DIGEST = 16


@contextmanager
def held(
    folder: Path, lock: str = ".lock", way_out: str = "wait for it, or choose another --out"
) -> Iterator[None]:
    """Keeps other processes out of a folder: two that write there would mix up their results.

    The lock ends with this process, however it ends; forked workers do not inherit it. It does not
    keep this process itself out, so what is held at the same time needs a lock file of its own.

    Args:
        folder: Is created if it is missing.
        lock: The name of the lock file in it.
        way_out: What a user who is refused can do.

    Raises:
        UsageError: Another process holds the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock).open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise UsageError(f"{folder} is in use by another process: {way_out}") from None
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
    write_checked(path, encode(value, once=True), durable)


def write_checked(path: Path, data: bytes, durable: bool = False) -> None:
    """Writes bytes with a digest in front."""
    write_file(path, _digest(data) + data, durable)


def load(path: Path, records: Mapping[str, type] = {}) -> Any:
    """Reads what `save` wrote; a damaged file is an error that names it."""
    try:
        return decode(read_checked(path), records)
    except Refused as error:
        raise Failure(
            f"{path} cannot be read ({error}): it comes from another version of the algorithm"
        ) from error


def read_checked(path: Path) -> bytes:
    """Reads what `write_checked` wrote; a damaged file is an error that names it."""
    content = path.read_bytes()
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if digest != _digest(data):
        raise Failure(f"{path} is damaged: delete it to go on from the file before it")
    return data


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
