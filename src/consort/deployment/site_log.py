"""A client's own log of what it was asked and what it answered, which cannot be changed unnoticed.

Each line is a JSON object with its number, the hash of the line before and a signature with the
client's key. The last line's number and hash are kept in a second file as well, so that lines
cannot be cut off either. A new key is announced by a line that it signs itself; all lines before
are in the hash that it signs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from consort.core.files import write_file
from consort.deployment.certificates import read_certificate
from consort.deployment.keys import PrivateKey, public_bytes
from consort.errors import Failure, UsageError

Entry = dict[str, Any]
_FIRST = "0" * 64
_ALGORITHM = ec.ECDSA(hashes.SHA256())


class SiteLog:
    """The log of a client; several processes of its owner may add to it.

    Args:
        credentials: The folder of the client's credentials.
        key: The client's key.

    Raises:
        Failure: If it was damaged or changed; a last line that was not finished is cut off.
    """

    def __init__(self, credentials: Path, key: PrivateKey) -> None:
        self.path, self.head = _paths(credentials)
        self._key = key
        self._public = public_bytes(key.public_key()).decode()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked() as file:
            self._repair(file)
            head, lines = _Head.read(self.head), _raw_lines(self.path)
            if lines and _hash(_checked(self.path, head.count, lines[-1], None)) != head.hash:
                raise _changed(self.path, head.count)
            if self._signer() != self._public:
                self._append(file, {"event": "key", "public": self._public})

    def add(self, event: str, **about: Any) -> None:
        """Adds a line, and waits until it is on disk.

        Args:
            event: What happened.
            about: More about it, as plain values.

        Raises:
            Failure: If the log was changed meanwhile.
        """
        with self._locked() as file:
            self._repair(file)
            self._append(file, {"event": event} | about)

    def _append(self, file: int, about: Mapping[str, Any]) -> None:
        head = _Head.read(self.head)
        entry: Entry = {"number": head.count + 1, "time": round(time.time(), 3)} | dict(about)
        entry["previous"] = head.hash
        entry["signature"] = self._key.sign(_hash(entry).encode(), _ALGORITHM).hex()
        line = _written(entry) + b"\n"
        if os.write(file, line) != len(line):
            raise OSError(ENOSPC, os.strerror(ENOSPC), str(self.path))
        os.fsync(file)
        head.after(entry, len(line)).write(self.head)

    def _repair(self, file: int) -> None:
        """Completes what a crash interrupted: the last line, or the head, and nothing else."""
        head = _Head.read(self.head)
        size = os.fstat(file).st_size
        rest = os.pread(file, max(size - head.bytes, 0), head.bytes)
        if size < head.bytes:
            raise _changed(self.path, 1 + len(_raw_lines(self.path)))
        if rest.count(b"\n") > 1 or (b"\n" in rest and not rest.endswith(b"\n")):
            raise _changed(self.path, head.count + 1)
        if rest.endswith(b"\n"):
            entry = _checked(self.path, head.count + 1, rest, head.hash)
            _check_signature(self.path, head.count + 1, entry, self._signer())
            head.after(entry, len(rest)).write(self.head)
        elif rest:
            os.ftruncate(file, head.bytes)
            os.fsync(file)

    def _signer(self) -> str:
        """The key that signs, which was announced last; checks the chain of all lines."""
        found, previous = "", _FIRST
        for number, line in enumerate(_raw_lines(self.path), 1):
            entry = _checked(self.path, number, line, previous)
            previous = _hash(entry)
            if entry.get("event") == "key":
                found = str(entry.get("public"))
        return found

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, open for appending, which no other process writes to meanwhile."""
        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def read_lines(credentials: Path) -> Iterator[Entry]:
    """The lines of the log of a client, as they are.

    Args:
        credentials: The folder of the client's credentials.

    Raises:
        Failure: If a line cannot be read.
    """
    path, _ = _paths(credentials)
    for number, line in enumerate(_raw_lines(path), 1):
        yield _checked(path, number, line, None)


def verified(credentials: Path) -> Iterator[Entry]:
    """The lines of the log of a client, each verified together with those before.

    Args:
        credentials: The folder of the client's credentials.

    Raises:
        Failure: At the first line that is missing, damaged or changed.
    """
    path, head = _paths(credentials)
    known = _Head.read(head)
    previous, key, number = _FIRST, "", 0
    for number, line in enumerate(_raw_lines(path), 1):
        entry = _checked(path, number, line, previous)
        if entry.get("event") == "key":
            key = str(entry.get("public"))
        _check_signature(path, number, entry, key)
        previous = _hash(entry)
        yield entry
    if number < known.count:
        raise _changed(path, number + 1)
    if number > known.count or previous != known.hash:
        raise Failure(f"{head} does not belong to {path}: one of them was replaced")
    if number and key != _public_key(credentials):
        raise Failure(f"{path} ends with another key than the client's: it was made by another one")


def _paths(credentials: Path) -> tuple[Path, Path]:
    """The log, and the file with the number and the hash of its last line."""
    return credentials / "log" / "log.jsonl", credentials / "log" / "log.head"


def _raw_lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines() if path.exists() else []


def _public_key(credentials: Path) -> str:
    """The key in the client's certificate."""
    for path in sorted(credentials.glob("*.pem")):
        if path.name != "ca.pem":
            return public_bytes(read_certificate(path).public_key()).decode()
    raise UsageError(f"{credentials} has no certificate to verify the log with")


@dataclass(frozen=True)
class _Head:
    """What is known of a log without reading it."""

    count: int = 0
    hash: str = _FIRST
    bytes: int = 0

    @classmethod
    def read(cls, path: Path) -> _Head:
        """The head in a file; if it does not exist, there is no line.

        Raises:
            Failure: If it is damaged.
        """
        try:
            count, last, size = json.loads(path.read_text())
            return cls(int(count), str(last), int(size))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError) as error:
            raise Failure(f"{path} is damaged: move it and the log to another place") from error

    def after(self, entry: Entry, size: int) -> _Head:
        """The head after one more line of so many bytes."""
        return _Head(self.count + 1, _hash(entry), self.bytes + size)

    def write(self, path: Path) -> None:
        """Writes it to disk."""
        write_file(path, json.dumps([self.count, self.hash, self.bytes]).encode(), durable=True)


def _checked(path: Path, number: int, line: bytes, previous: str | None) -> Entry:
    """A line as it must be after the line before."""
    try:
        entry: Entry = json.loads(line)
        fits = entry["number"] == number and previous in (None, entry["previous"])
    except (ValueError, LookupError, TypeError):
        fits = False
    if not fits or _written(entry) != line.rstrip(b"\n"):
        raise _changed(path, number)
    return entry


def _check_signature(path: Path, number: int, entry: Entry, public: str) -> None:
    try:
        key = serialization.load_pem_public_key(public.encode())
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise _changed(path, number)
        key.verify(bytes.fromhex(str(entry["signature"])), _hash(entry).encode(), _ALGORITHM)
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, LookupError) as error:
        raise _changed(path, number) from error


def _written(entry: Entry) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()


def _hash(entry: Entry) -> str:
    """The hash of a line without its signature."""
    signed = {key: value for key, value in entry.items() if key != "signature"}
    return hashlib.sha256(_written(signed)).hexdigest()


def _changed(path: Path, number: int) -> Failure:
    return Failure(f"{path}, line {number}: it is missing, damaged or was changed")
