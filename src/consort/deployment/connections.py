"""Connections to a public port: bounded in number, in time and in what they cost.

A stranger can open connections and be silent, or send half of something. So a connection costs
next to nothing until its first byte arrives, has a few seconds to identify itself, and gives way to
newer ones if there are too many. Connections of admitted clients give way to nobody.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial

_SECONDS = 10.0  # for a connection to identify itself, from its first byte
_SILENT = 5.0  # until its first byte
_AT_ONCE = 100  # connections accepted before others are served again
_BACKLOG = 4096
_PIECE, _BLOCK = 16 << 10, 256 << 10  # bytes that are read and written at a time


@dataclass(frozen=True)
class PortLimits:
    """How many connections there may be."""

    strangers: int = 2048
    """Without a client that is known, in all."""
    of_peer: int = 1024
    """The same, from one address (IPv6: one network of 64 bits)."""
    of_client: int = 32
    """Of one client."""


@dataclass(eq=False)
class Connection:
    """One connection, of a stranger as long as `client` is empty; it reads nothing ahead."""

    peer: str
    socket: socket.socket
    client: str = ""
    task: asyncio.Task[None] | None = None
    received: int = 0
    """Bytes that have arrived, encrypted."""
    _incoming: ssl.MemoryBIO = field(init=False)
    _outgoing: ssl.MemoryBIO = field(init=False)
    _tls: ssl.SSLObject = field(init=False)

    async def secure(self, context: ssl.SSLContext) -> None:
        """Carries out the TLS handshake."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while True:
            try:
                self._tls.do_handshake()
                return await self._flush()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()

    async def read(self) -> bytes:
        """What arrives next, at most a few kilobytes; nothing if the other side has ended."""
        while True:
            try:
                return self._tls.read(_PIECE)
            except ssl.SSLWantReadError:
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    async def write(self, data: bytes) -> None:
        """Sends all of it."""
        for start in range(0, len(data), _BLOCK):
            self._tls.write(data[start : start + _BLOCK])
            await self._flush()

    async def _receive(self) -> None:
        data = await asyncio.get_running_loop().sock_recv(self.socket, _PIECE)
        self.received += len(data)
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await asyncio.get_running_loop().sock_sendall(self.socket, self._outgoing.read())


Serve = Callable[[Connection], Awaitable[None]]


class Connections:
    """Accepts connections on a port and hands over those that speak TLS.

    Args:
        listeners: The sockets to accept from.
        context: How TLS is spoken.
        serve: Serves one connection to its end; it calls `identified` in time.
        limits: How many connections there may be.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        context: ssl.SSLContext,
        serve: Serve,
        limits: PortLimits = PortLimits(),
    ) -> None:
        self.listeners, self.context, self.serve, self.limits = listeners, context, serve, limits
        self.strangers: dict[Connection, None] = {}
        self.clients: dict[str, dict[Connection, None]] = {}
        self._peers: dict[str, dict[Connection, None]] = {}
        self._turns = _Turns()

    async def run(self, over: asyncio.Event) -> None:
        """Accepts connections until an event occurs, and closes all of them then."""
        loop = asyncio.get_running_loop()
        turns = loop.create_task(self._turns.run())
        for listener in self.listeners:
            loop.add_reader(listener, self._accept, listener)
        try:
            await over.wait()
        finally:
            for listener in self.listeners:
                loop.remove_reader(listener)
                listener.close()
            turns.cancel()
            everybody = [*self.strangers, *(c for of in self.clients.values() for c in of)]
            for connection in everybody:
                self._end(connection)
            tasks = [connection.task for connection in everybody if connection.task]
            await asyncio.gather(turns, *tasks, return_exceptions=True)

    def identified(self, connection: Connection, client: str) -> None:
        """Says that a connection belongs to an admitted client."""
        if connection.client != client:
            self._forget(connection)
            connection.client = client
            own = self.clients.setdefault(client, {})
            own[connection] = None
            if len(own) > self.limits.of_client:
                self._end(next(iter(own)))

    def close_all_of(self, client: str) -> None:
        """Ends the connections of a client that is no longer admitted."""
        for connection in list(self.clients.get(client, ())):
            self._end(connection)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                accepted, address = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # there are no more file descriptors
                if self.strangers:
                    self._end(next(iter(self.strangers)))
                return
            accepted.setblocking(False)
            connection = Connection(_network(address[0]), accepted)
            self.strangers[connection] = None
            own = self._peers.setdefault(connection.peer, {})
            own[connection] = None
            if len(own) > self.limits.of_peer:
                self._end(next(iter(own)))
            elif len(self.strangers) > self.limits.strangers:
                self._end(next(iter(self.strangers)))
            connection.task = asyncio.get_running_loop().create_task(self._run(connection))
            connection.task.add_done_callback(partial(self._ended, connection))

    async def _run(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(_SILENT):
                await _readable(connection.socket)
            async with asyncio.timeout(_SECONDS):
                await self._turns.wait(connection.peer)
                await connection.secure(self.context)
            await self.serve(connection)
        except (OSError, asyncio.CancelledError):  # also TimeoutError and those of TLS
            pass

    def _ended(self, connection: Connection, _: asyncio.Task[None]) -> None:
        self._forget(connection)
        connection.socket.close()

    def _end(self, connection: Connection) -> None:
        self._forget(connection)
        if connection.task:
            connection.task.cancel()

    def _forget(self, connection: Connection) -> None:
        self.strangers.pop(connection, None)
        for table, key in ((self._peers, connection.peer), (self.clients, connection.client)):
            own = table.get(key, {})
            own.pop(connection, None)
            if not own:
                table.pop(key, None)


class _Turns:
    """Lets one TLS handshake begin at a time: the newest of each address, addresses in turn.

    A handshake costs a fraction of a millisecond. Without turns, a thousand that begin at the same
    moment would keep everybody else waiting, and old ones, which may be half of one, the new ones.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        self._some = asyncio.Event()

    async def wait(self, peer: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(peer, {})[turn] = None
        self._some.set()
        try:
            await turn
        finally:
            self._remove(peer, turn)

    async def run(self) -> None:
        while True:
            await self._some.wait()
            while self._waiting:
                peer = next(iter(self._waiting))
                own = self._waiting.pop(peer)
                turn, _ = own.popitem()
                if own:
                    self._waiting[peer] = own
                if not turn.done():
                    turn.set_result(None)
                await asyncio.sleep(0)
            self._some.clear()

    def _remove(self, peer: str, turn: asyncio.Future[None]) -> None:
        own = self._waiting.get(peer, {})
        own.pop(turn, None)
        if not own:
            self._waiting.pop(peer, None)


async def _readable(accepted: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(accepted, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(accepted)


def _network(address: str) -> str:
    with suppress(ValueError):
        parsed = ipaddress.ip_address(address.partition("%")[0])
        if parsed.version == 6 and parsed.ipv4_mapped is None:
            return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address


def listening(host: str, port: int) -> list[socket.socket]:
    """Opens a port, and allows this process as many open files as the system does.

    Args:
        host: The name or address to listen on.
        port: The number of the port.

    Returns:
        A socket for every address of the host.

    Raises:
        OSError: If the address cannot be used.
    """
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    with ExitStack() as opened:
        listeners = []
        for family, kind, _, _, address in dict.fromkeys(found):
            listener = opened.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            listeners.append(listener)
        opened.pop_all()
    return listeners
