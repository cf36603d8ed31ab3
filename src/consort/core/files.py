"""The one way to write files and to read them back.

What is written survives a crash and a power cut: a file is replaced as a whole or appended to, is
on the disk before its name is, and belongs to its owner alone from the moment it exists. What is
read back is compared with a digest.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from consort.core.limits import OWN
from consort.errors import Failure, Refused, UsageError

_DIGEST = 16
_OWNER_FILE, _OWNER_FOLDER = 0o600, 0o700
_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MORE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


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
        Failure: If the folder cannot be created or written to.
    """
    make_folder(folder)
    with naming(folder / lock):
        descriptor = os.open(folder / lock, _MORE, _OWNER_FILE)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise UsageError(f"{folder} is in use by another process: {way_out}") from None
        yield
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Creates a folder that only its owner may enter, with the folders above it that are missing.

    Args:
        folder: The folder; one that exists is left as it is.

    Raises:
        Failure: If it cannot be created.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with naming(folder):
        try:
            os.mkdir(folder, _OWNER_FOLDER)  # noqa: PTH102 (pathlib leaves the mode to the umask)
        except FileExistsError:
            if not folder.is_dir():
                raise Failure(f"{folder} is not a folder: choose another one") from None
        sync_folder(folder.parent)


def write_file(path: Path, data: bytes, durable: bool = True) -> None:
    """Replaces a file as a whole, so that readers find either the old or the new content.

    Args:
        path: The file; its folder is created if it does not exist.
        data: The new content.
        durable: Whether to wait until the content and then the name are on the disk.

    Raises:
        Failure: If the file cannot be written; its old content is still there.
    """
    make_folder(path.parent)
    draft = path.with_name(path.name + ".tmp")
    with naming(path):
        draft.unlink(missing_ok=True)  # a crash may have left one, with whatever mode
        try:
            descriptor = os.open(draft, _NEW, _OWNER_FILE)
            try:
                _write_all(descriptor, data)
                if durable:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            raise
        if durable:
            sync_folder(path.parent)


def append_file(path: Path, data: bytes, durable: bool = True) -> int:
    """Adds to the end of a file, which is created if it does not exist.

    Args:
        path: The file.
        data: What is added.
        durable: Whether to wait until it is on the disk.

    Returns:
        The length of the file before.

    Raises:
        Failure: If the file cannot be written; its old content is still there.
    """
    make_folder(path.parent)
    with naming(path):
        descriptor = os.open(path, _MORE, _OWNER_FILE)
        try:
            start = os.lseek(descriptor, 0, os.SEEK_END)
            try:
                _write_all(descriptor, data)
                if durable:
                    os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, start)
                raise
        finally:
            os.close(descriptor)
        if durable and start == 0:
            sync_folder(path.parent)
    return start


def cut_file(path: Path, length: int) -> None:
    """Removes what is in a file after a length.

    Raises:
        Failure: If the file cannot be changed.
    """
    with naming(path):
        os.truncate(path, length)


def sync_file(path: Path) -> None:
    """Waits until a file is on the disk, whoever wrote it.

    Raises:
        Failure: If it cannot be written there.
    """
    with naming(path):
        _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Waits until the names in a folder are on the disk.

    Raises:
        Failure: If they cannot be written there.
    """
    with naming(folder):
        try:
            _sync(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems know no such
                raise


def save(path: Path, value: Any, durable: bool = True) -> None:
    """Writes a value with a digest, for `load`.

    Args:
        path: The file.
        value: What `consort.core.wire.encode` accepts.
        durable: Whether to wait until the content is on the disk.
    """
    from consort.core.wire import encode  # needs torch, which reports do without

    write_checked(path, encode(value, once=True), durable)


def load(path: Path, records: Mapping[str, type] = {}) -> Any:
    """Reads a value that `save` wrote.

    Args:
        path: The file.
        records: The dataclasses that may occur in the value, by name.

    Raises:
        Failure: If the file is damaged, or was written by another version of the algorithm.
    """
    from consort.core.wire import decode

    try:
        return decode(read_checked(path), records, OWN)
    except Refused as error:
        raise Failure(
            f"{path} cannot be read ({error}): it comes from another version of the algorithm"
        ) from error


def write_checked(path: Path, data: bytes, durable: bool = True) -> None:
    """Writes bytes with a digest, for `read_checked`.

    Args:
        path: The file.
        data: The bytes.
        durable: Whether to wait until the content is on the disk.
    """
    write_file(path, _hash(data).digest() + data, durable)


def read_checked(path: Path) -> bytes:
    """Reads bytes that `write_checked` wrote.

    Args:
        path: The file.

    Raises:
        Failure: If the file is damaged or cannot be read.
    """
    with naming(path, "read"):
        content = path.read_bytes()
    found, data = content[:_DIGEST], content[_DIGEST:]
    if found != _hash(data).digest():
        raise Failure(f"{path} is damaged: delete it to go on from the file before it")
    return data


def read_part(path: Path, offset: int, length: int) -> bytes:
    """Reads a part of a file; it is shorter if the file is.

    Raises:
        Failure: If the file cannot be read.
    """
    with naming(path, "read"), path.open("rb", buffering=0) as file:
        file.seek(offset)
        return file.read(length)


def digest_of(data: bytes) -> str:
    """The digest of bytes, as text."""
    return _hash(data).hexdigest()


def running_digest(path: Path, length: int) -> hashlib.blake2b:
    """The digest of the beginning of a file, which may be continued with what is added to it.

    Args:
        path: The file; one that does not exist counts as empty.
        length: How many bytes belong to the digest.

    Raises:
        Failure: If the file is shorter, or cannot be read.
    """
    digest, left = _hash(), length
    if left:
        with naming(path, "read"), path.open("rb", buffering=0) as file:
            while left and (block := file.read(min(left, _BLOCK))):
                digest.update(block)
                left -= len(block)
    if left:
        raise Failure(f"{path} was cut short")
    return digest


def _hash(data: bytes = b"") -> hashlib.blake2b:
    return hashlib.blake2b(data, digest_size=_DIGEST)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@contextmanager
def naming(path: Path, what: str = "written") -> Iterator[None]:
    """Turns what the operating system refuses into a sentence that names the file.

    Args:
        path: The file.
        what: What cannot be done with it.

    Raises:
        Failure: In place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        if what == "read" and isinstance(error, FileNotFoundError):
            raise Failure(f"{path} is missing: start the run again in a new folder") from error
        reason = f"[Errno {error.errno}] {error.strerror}" if error.strerror else str(error)
        raise Failure(
            f"{path} cannot be {what} ({reason}): repair that and repeat the command; what was "
            "finished is not lost"
        ) from error
