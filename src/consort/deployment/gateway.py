"""The gateway: the only public port of a server. It forwards what admitted clients may send.

Flower's SuperLink accepts commands (start a run, stop it, list nodes) from anybody, on the same
port that clients use. Therefore it listens on this machine only, and clients connect to the
gateway. What is forwarded is built anew from what was checked, not copied.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any

import h11
import httpx

from consort.deployment.authentication import Admissions, Authentication, NotAuthenticated
from consort.deployment.connections import Connection, Connections, PortLimits, listening
from consort.deployment.credentials import ServerCredentials
from consort.deployment.http_connection import HttpAnswer, HttpExchange, Refusal
from consort.deployment.link.fleet import (
    KEY,
    LARGEST,
    PUSH_MESSAGES,
    PUSH_OBJECT,
    SIGNATURE,
    TIMESTAMP,
    is_reply_of,
)
from consort.errors import Failure

_TYPE = b"application/protobuf"
_LARGE = 64 << 10  # bytes; of bodies above, only a few are in memory at a time
_LARGE_AT_ONCE, _LARGE_OF_CLIENT = 32, 2
_TURN = 30.0  # seconds to wait for the memory
_CHECK = 1.0  # seconds between looks for clients that were revoked
_START = 10.0  # seconds


class Gateway:
    """An HTTPS server that forwards allowed requests of admitted clients, and nothing else.

    Args:
        listen: HOST:PORT to listen on.
        behind: HOST:PORT of the SuperLink.
        authority: The certificate that verifies the SuperLink.
        credentials: The server's credentials.
        seen: Is called with the name of a client whenever it sends a request.
        report: Is told what the operator should know.
        refused: Is called with the reason whenever a request is refused.
        limits: How many connections there may be.
    """

    largest_answer: int = 1 << 30
    """Bytes that a client may send for each message that it was asked."""

    def __init__(
        self,
        listen: str,
        behind: str,
        authority: bytes,
        credentials: ServerCredentials,
        seen: Callable[[str], Any] = lambda _: None,
        report: Callable[[str], Any] = lambda _: None,
        refused: Callable[[str], Any] = lambda _: None,
        limits: PortLimits = PortLimits(),
    ) -> None:
        self.listen, self.behind, self.authority = listen, behind, authority
        self.credentials, self.seen, self.report = credentials, seen, report
        self.refused, self.limits = refused, limits
        self.nodes: Mapping[str, int] = {}
        self.admissions = Admissions(credentials, report)
        self.too_large: set[str] = set()
        """Clients whose answer was larger than allowed, since they were last asked."""
        self._allowance: dict[str, int] = {}
        self._authentication = Authentication(self.admissions)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()

    @property
    def keys(self) -> Mapping[str, bytes]:
        """The keys of the admitted clients by name."""
        return self.admissions.keys

    def start(self) -> None:
        """Opens the port.

        Raises:
            Failure: If the address cannot be used.
        """
        host, _, port = self.listen.rpartition(":")
        context = self._tls()
        try:
            listeners = listening(host.strip("[]"), int(port))
        except OSError as error:
            raise Failure(f"cannot listen on {self.listen}: {error.strerror or error}") from error
        self._connections = Connections(listeners, context, self._serve, self.limits)
        self._thread.start()
        if not self._ready.wait(_START):
            raise Failure(f"cannot listen on {self.listen}: this machine is too busy")

    def close(self) -> None:
        """Closes the port and every connection."""
        if self._ready.is_set():
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join(_START)

    def allow(self, client: str) -> None:
        """Says that a client was asked something, and may send an answer of `largest_answer`."""
        more = self.largest_answer // 8 + (1 << 20)  # what goes around it
        self._allowance[client] = self.largest_answer + more
        self.too_large.discard(client)

    def _tls(self) -> ssl.SSLContext:
        _ = self.credentials.private_key  # explains what is wrong with it
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        folder, passphrase = self.credentials.folder, self.credentials.passphrase
        context.load_cert_chain(folder / "server.pem", folder / "server.key", passphrase or b"")
        return context

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._loop.set_exception_handler(lambda *_: None)  # others' broken connections
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._large_of: dict[str, asyncio.Semaphore] = {}
        trust = ssl.create_default_context(cadata=self.authority.decode())
        async with httpx.AsyncClient(
            base_url=f"https://{self.behind}", verify=trust, timeout=60, trust_env=False
        ) as self._superlink:
            watching = asyncio.create_task(self._watch())
            self._ready.set()
            await self._connections.run(self._over)
            watching.cancel()

    async def _watch(self) -> None:
        """Ends the connections of clients that are no longer admitted."""
        while True:
            for client in list(self._connections.clients):
                if client not in self.keys:
                    self._connections.close_all_of(client)
            await asyncio.sleep(_CHECK)

    async def _serve(self, connection: Connection) -> None:
        """Answers the requests of a connection; the first that is refused is the last."""
        exchange = HttpExchange(connection)
        while True:
            try:
                request = await exchange.next_request()
                if request is None:
                    return
                answer = await self._answer(connection, exchange, request)
            except Refusal as refusal:
                self.refused(refusal.reason)
                await exchange.refuse(refusal)
                return
            await exchange.answer(answer)
            if not exchange.is_reusable:
                return

    async def _answer(
        self, connection: Connection, exchange: HttpExchange, request: h11.Request
    ) -> HttpAnswer:
        path, headers = exchange.checked(request)
        if request.method != b"POST" or path not in LARGEST:
            raise Refusal(404, "not found")
        try:
            client = self._authentication.client_of(headers)
        except NotAuthenticated as error:
            raise Refusal(401, str(error)) from error
        self._connections.identified(connection, client)
        size = exchange.size(headers)
        self._charge(client, path, size)
        self.seen(client)
        sent = {name: headers[name] for name in (KEY, TIMESTAMP, SIGNATURE)}
        if size <= _LARGE:
            return await self._forward(client, path, sent, await exchange.body(size))
        own = self._large_of.setdefault(client, asyncio.Semaphore(_LARGE_OF_CLIENT))
        try:
            async with asyncio.timeout(_TURN):
                await own.acquire()
                try:
                    await self._large.acquire()
                except BaseException:
                    own.release()
                    raise
        except TimeoutError as error:
            raise Refusal(503, "busy") from error
        try:
            return await self._forward(client, path, sent, await exchange.body(size))
        finally:
            self._large.release()
            own.release()

    def _charge(self, client: str, path: str, size: int) -> None:
        """Counts what a client sends against what it may."""
        if size > LARGEST[path]:
            raise Refusal(413, "too large")
        if path in (PUSH_MESSAGES, PUSH_OBJECT):
            left = self._allowance.get(client, 0) - size
            if left < 0:
                self.too_large.add(client)
                raise Refusal(413, "more than an answer")
            self._allowance[client] = left

    async def _forward(
        self, client: str, path: str, sent: Mapping[bytes, bytes], body: bytes
    ) -> HttpAnswer:
        if path == PUSH_MESSAGES and not is_reply_of(self.nodes.get(client, -1), body):
            raise Refusal(403, "not a reply of this client")
        headers = [(b"content-type", _TYPE), (b"accept", _TYPE), *sent.items()]
        try:
            answer = await self._superlink.post(path, content=body, headers=headers)
        except httpx.TransportError as error:
            raise Refusal(503, "unavailable") from error
        kind = answer.headers.get("content-type", "application/octet-stream")
        return HttpAnswer(answer.status_code, kind.encode("latin-1"), answer.content)
