"""A client's own log of what it was asked and what it answered, which cannot be changed unnoticed.

Each line is a JSON object with its number, the hash of the line before and a signature with the
client's key. The last line's number and hash are kept in a second file as well, so that lines
cannot be cut off either. A new key is announced by a line that it signs itself; all lines before
are in the hash that it signs.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from consort.core.files import write_file
from consort.deployment.certificates import PrivateKey, public_bytes
from consort.errors import Failure

Entry = dict[str, Any]
_FIRST = "0" * 64
_ALGORITHM = ec.ECDSA(hashes.SHA256())


class SiteLog:
    """The log of a client; several processes of its owner may add to it.

    Args:
        folder: Where it is kept.
        key: The client's key.

    Raises:
        Failure: If it was damaged or changed; a last line that was not finished is cut off.
    """

    def __init__(self, folder: Path, key: PrivateKey) -> None:
        self.path, self.head = folder / "log.jsonl", folder / "log.head"
        self._key = key
        self._public = public_bytes(key.public_key()).decode()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._locked() as file:
            self._repair(file)
            last = self._last_key()
            if last != self._public:
                self._append(file, {"event": "key", "public": self._public})

    def add(self, event: str, **about: Any) -> None:
        """Adds a line, and waits until it is on disk.

        Args:
            event: What happened.
            about: More about it, as plain values.
        """
        with self._locked() as file:
            self._repair(file)
            self._append(file, {"event": event} | about)

    def lines(self) -> Iterator[Entry]:
        """All lines, each verified together with those before.

        Raises:
            Failure: At the first line that is missing, damaged or changed.
        """
        yield from verified(self.path, self.head, self._public)

    def _append(self, file: int, about: Mapping[str, Any]) -> None:
        count, previous = read_head(self.head)
        entry: Entry = {"number": count + 1, "time": round(time.time(), 3)} | dict(about)
        entry["previous"] = previous
        own = _hash(entry)
        entry |= {"signature": self._key.sign(own.encode(), _ALGORITHM).hex()}
        os.write(file, _written(entry) + b"\n")
        os.fsync(file)
        write_file(self.head, json.dumps([count + 1, own]).encode(), durable=True)

    def _repair(self, file: int) -> None:
        """Completes what a crash interrupted: the head, or the last line, and nothing else."""
        count, previous = read_head(self.head)
        data = self.path.read_bytes()
        lines = data.split(b"\n")
        whole, rest = lines[:-1], lines[-1]
        if rest and len(whole) == count:
            os.ftruncate(file, len(data) - len(rest))
            os.fsync(file)
        elif rest or len(whole) not in (count, count + 1):
            raise _changed(self.path, len(whole) + 1 if rest else min(count, len(whole)) + 1)
        elif len(whole) == count + 1:
            entry = _checked(self.path, count + 1, whole[-1], previous)
            if entry.get("event") != "key":
                _check_signature(self.path, count + 1, entry, self._public)
            write_file(self.head, json.dumps([count + 1, _hash(entry)]).encode(), durable=True)
        elif whole and _hash(_checked(self.path, count, whole[-1], None)) != previous:
            raise _changed(self.path, count)

    def _last_key(self) -> str:
        found = ""
        for line in self.path.read_bytes().splitlines():
            if b'"event":"key"' in line:
                found = str(json.loads(line).get("public"))
        return found

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, open for appending, which no other process writes to meanwhile."""
        import fcntl

        file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def verified(path: Path, head: Path, public: str) -> Iterator[Entry]:
    """The lines of a log, each verified together with those before.

    Args:
        path: The log.
        head: The file with the number and hash of its last line.
        public: The client's public key, in PEM form.

    Raises:
        Failure: At the first line that is missing, damaged or changed.
    """
    count, last = read_head(head)
    previous, key, number = _FIRST, "", 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            entry = _checked(path, number, line, previous)
            if entry.get("event") == "key":
                key = str(entry.get("public"))
            _check_signature(path, number, entry, key)
            previous = _hash(entry)
            yield entry
    if number < count:
        raise _changed(path, number + 1)
    if number > count or previous != last:
        raise Failure(f"{head} does not belong to {path}: one of them was replaced")
    if key != public:
        raise Failure(f"{path} was signed with another key than that of this client")


def read_head(path: Path) -> tuple[int, str]:
    """The number and the hash of the last line of a log.

    Args:
        path: The file that holds them; if it does not exist, there is no line.

    Raises:
        Failure: If it is damaged.
    """
    try:
        count, last = json.loads(path.read_text())
        return int(count), str(last)
    except FileNotFoundError:
        return 0, _FIRST
    except (OSError, ValueError, TypeError) as error:
        raise Failure(f"{path} is damaged: move it and the log to another place") from error


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
    except (InvalidSignature, ValueError, LookupError) as error:
        raise _changed(path, number) from error


def _written(entry: Entry) -> bytes:
    return json.dumps(entry, separators=(",", ":")).encode()


def _hash(entry: Entry) -> str:
    """The hash of a line without its signature."""
    signed = {key: value for key, value in entry.items() if key != "signature"}
    return hashlib.sha256(_written(signed)).hexdigest()


def _changed(path: Path, number: int) -> Failure:
    return Failure(f"{path}, line {number}: it is missing, damaged or was changed")
