"""HTTP on one connection of the gateway: bounded, and with one value for every header."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import h11

from consort.deployment.connections import Connection

_HEADERS = 16 << 10  # bytes of a request's first line and headers
_FIRST = 5.0  # seconds for the headers of a stranger
_NEXT = 75.0  # seconds for the next request of a client, more than between two of its heartbeats
_GRACE, _RATE = 10.0, 32 << 10  # seconds for any body, and bytes that must arrive per second
_SENDING = 120.0  # seconds for a client to take an answer
_LINGER, _THROWN_AWAY = 1.0, 64 << 10  # seconds and bytes after a refusal


class Refusal(Exception):
    """A request is not carried out.

    Args:
        status: The status code of the answer.
        reason: Its text.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class HttpAnswer:
    """What is sent back."""

    status: int
    kind: bytes
    body: bytes


class HttpExchange:
    """Requests and answers on one connection, one after the other.

    Args:
        connection: The connection.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEADERS)

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow."""
        return bool(self._http.our_state is h11.IDLE)

    async def next_request(self) -> h11.Request | None:
        """Waits for the headers of a request.

        Returns:
            The request; `None` if the connection has ended.

        Raises:
            Refusal: If this is not HTTP, or too much of it.
        """
        async with asyncio.timeout(_NEXT if self.connection.client else _FIRST):
            event = await self._event()
        return event if isinstance(event, h11.Request) else None

    def checked(self, request: h11.Request) -> tuple[str, dict[bytes, bytes]]:
        """The path and the headers of a request.

        Raises:
            Refusal: If there are two values of a header, or the length of the body is unknown.
        """
        headers = dict(request.headers)
        if len(headers) != len(request.headers):
            raise Refusal(400, "two values of a header")
        if b"transfer-encoding" in headers or b"expect" in headers:
            raise Refusal(411, "the length of the body must be given")
        return request.target.decode("ascii", "replace"), headers

    def size(self, headers: Mapping[bytes, bytes]) -> int:
        """The length of the body, as the headers give it."""
        return int(headers.get(b"content-length", b"0"))

    async def body(self, size: int) -> bytes:
        """Reads the body of a request.

        Args:
            size: Its length.

        Raises:
            Refusal: If the connection ends before.
            TimeoutError: If it arrives too slowly.
        """
        body = bytearray()
        async with asyncio.timeout(_GRACE + size / _RATE):
            while not isinstance(event := await self._event(), h11.EndOfMessage):
                if not isinstance(event, h11.Data) or len(body) + len(event.data) > size:
                    raise Refusal(400, "a damaged body")
                body += event.data
        return bytes(body)

    async def answer(self, answer: HttpAnswer) -> None:
        """Sends an answer, and prepares for the next request."""
        headers = [(b"content-type", answer.kind), (b"content-length", b"%d" % len(answer.body))]
        await self._send(
            h11.Response(status_code=answer.status, headers=headers),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        )
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()

    async def refuse(self, refusal: Refusal) -> None:
        """Sends a refusal if that is still possible; the connection ends after it.

        What the client is sending meanwhile is thrown away for a moment: if it were not read, the
        connection would be reset, and the client would not see the refusal.
        """
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = refusal.reason.encode()
        headers = [(b"content-length", b"%d" % len(text)), (b"connection", b"close")]
        response = h11.Response(status_code=refusal.status, headers=headers)
        await self._send(response, h11.Data(data=text), h11.EndOfMessage())
        end = self.connection.received + _THROWN_AWAY
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER):
                while self.connection.received < end and await self.connection.read():
                    pass

    async def _event(self) -> object:
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise Refusal(error.error_status_hint, "not a valid request") from error
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(await self.connection.read())

    async def _send(self, *events: h11.Event) -> None:
        async with asyncio.timeout(_SENDING):
            await self.connection.write(b"".join(self._http.send(e) or b"" for e in events))
