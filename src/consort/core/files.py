"""Files that survive a crash: replaced as a whole, and checked for damage when they are read."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from consort.core.limits import OWN
from consort.core.wire import decode, encode
from consort.errors import Failure, Refused, UsageError

_DIGEST = 16


@contextmanager
def held(
    folder: Path, lock: str = ".lock", way_out: str = "wait for it, or choose another --out"
) -> Iterator[None]:
    """Locks a folder against other processes, whose results would be mixed up with those of this.

    The lock ends with this process, however it ends; forked workers do not inherit it. This process
    itself is not locked out, so two contexts at the same time need lock files of their own.

    Args:
        folder: The folder; it is created if it does not exist.
        lock: The name of the lock file in it.
        way_out: What a user can do if the folder is locked, for the error message.

    Raises:
        UsageError: If another process has locked the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock).open("w") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise UsageError(f"{folder} is in use by another process: {way_out}") from None
        yield


def write_file(path: Path, data: bytes, durable: bool = False) -> None:
    """Replaces a file as a whole, so that readers find either the old or the new content.

    Args:
        path: The file; its folder is created if it does not exist.
        data: The new content.
        durable: Whether to wait until the content is on disk.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(data)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    draft.replace(path)


def save(path: Path, value: Any, durable: bool = False) -> None:
    """Writes a value with a digest, for `load`.

    Args:
        path: The file.
        value: What `consort.core.wire.encode` accepts.
        durable: Whether to wait until the content is on disk.
    """
    write_checked(path, encode(value, once=True), durable)


def write_checked(path: Path, data: bytes, durable: bool = False) -> None:
    """Writes bytes with a digest, for `read_checked`.

    Args:
        path: The file.
        data: The bytes.
        durable: Whether to wait until the content is on disk.
    """
    write_file(path, _digest(data) + data, durable)


def load(path: Path, records: Mapping[str, type] = {}) -> Any:
    """Reads a value that `save` wrote.

    Args:
        path: The file.
        records: The dataclasses that may occur in the value, by name.

    Raises:
        Failure: If the file is damaged, or was written by another version of the algorithm.
    """
    try:
        return decode(read_checked(path), records, OWN)
    except Refused as error:
        raise Failure(
            f"{path} cannot be read ({error}): it comes from another version of the algorithm"
        ) from error


def read_checked(path: Path) -> bytes:
    """Reads bytes that `write_checked` wrote.

    Args:
        path: The file.

    Raises:
        Failure: If the file is damaged.
    """
    content = path.read_bytes()
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if digest != _digest(data):
        raise Failure(f"{path} is damaged: delete it to go on from the file before it")
    return data


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()
