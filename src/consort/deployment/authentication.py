"""Who sends a request to the gateway: known before a byte of its body is read."""

from __future__ import annotations

import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from consort.deployment.credentials import ServerCredentials
from consort.deployment.keys import read_public
from consort.deployment.link.fleet import EARLY, KEY, LATE, SIGNATURE, TIMESTAMP, signed_at
from consort.errors import ConsortError

_REFRESH = 2.0  # seconds after which certificates are read again although no file has changed
_MOST = 100_000  # signatures of a client that are remembered, more than it needs in five minutes
_HASH = ec.ECDSA(hashes.SHA256())


class NotAuthenticated(Exception):
    """The sender of a request is not an admitted client; the message says why."""


@dataclass
class Admissions:
    """The clients that are admitted now; a change of their folder is noticed at once.

    Args:
        credentials: The server's credentials.
        report: Is told about files in the folder that admit nobody.
    """

    credentials: ServerCredentials
    report: Callable[[str], Any] = lambda _: None
    _keys: dict[str, bytes] = field(default_factory=dict, init=False)
    _names: dict[bytes, str] = field(default_factory=dict, init=False)
    _wrong: dict[str, str] = field(default_factory=dict, init=False)
    _read: tuple[int, float] = field(default=(0, 0.0), init=False)

    @property
    def keys(self) -> Mapping[str, bytes]:
        """The public keys of the admitted clients, by name."""
        self._refresh()
        return self._keys

    def name_of(self, key: bytes) -> str | None:
        """The client with a public key, if it is admitted."""
        self._refresh()
        return self._names.get(key)

    def _refresh(self) -> None:
        changed, now = self._changed(), time.monotonic()
        if changed == self._read[0] and now < self._read[1]:
            return
        try:
            keys, wrong = self.credentials.admissions()
        except (ConsortError, OSError) as error:
            keys, wrong = {}, {str(self.credentials.folder): f"admits nobody: {error}"}
        for path, reason in wrong.items():
            if self._wrong.get(path) != reason:
                self.report(f"{path} {reason}")
        self._keys, self._wrong = keys, wrong
        self._names = {key: name for name, key in keys.items()}
        self._read = changed, now + _REFRESH

    def _changed(self) -> int:
        """When a certificate was last added, replaced or revoked."""
        try:
            return (self.credentials.folder / "clients").stat().st_mtime_ns
        except OSError:
            return 0


@dataclass
class Authentication:
    """Verifies the signatures of requests, each of which is good for one request.

    Flower's nodes sign the time of a request and nothing else. Therefore a time is accepted once
    from each client: headers that were seen by somebody cannot be used for another request. Times
    before the start of this process are refused, since it does not know which were used.

    Args:
        admissions: The admitted clients.
        clock: The current time, in seconds.
    """

    admissions: Admissions
    clock: Callable[[], float] = time.time
    _started: float = field(init=False)
    _used: dict[str, set[bytes]] = field(default_factory=dict, init=False)
    _order: dict[str, deque[tuple[float, bytes]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._started = self.clock()

    def client_of(self, headers: Mapping[bytes, bytes]) -> str:
        """The client that has sent a request with these headers.

        Raises:
            NotAuthenticated: If it is no admitted client, or the headers were used before.
        """
        try:
            shown = b64decode(headers[KEY], validate=True)
            signature = b64decode(headers[SIGNATURE], validate=True)
            stamp = headers[TIMESTAMP]
            moment = signed_at(stamp)
        except (KeyError, ValueError, OverflowError, NotBase64) as error:
            raise NotAuthenticated("this request is not signed") from error
        client = self.admissions.name_of(shown)
        if client is None:
            raise NotAuthenticated("this key is not admitted")
        now = self.clock()
        if not EARLY < now - moment < LATE or moment < self._started + EARLY:
            raise NotAuthenticated("the clock of this client is wrong")
        try:
            read_public(shown).verify(signature, stamp, _HASH)
        except InvalidSignature as error:
            raise NotAuthenticated("this request is not signed with this key") from error
        self._use(client, stamp, now)
        return client

    def _use(self, client: str, stamp: bytes, now: float) -> None:
        used = self._used.setdefault(client, set())
        order = self._order.setdefault(client, deque())
        while order and order[0][0] + LATE - EARLY < now:
            used.discard(order.popleft()[1])
        if stamp in used or len(used) >= _MOST:
            raise NotAuthenticated("this request was sent before")
        used.add(stamp)
        order.append((now, stamp))
