"""Serves `/metrics`, on an address of its own and never on the port of the clients."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

from consort.errors import Failure, UsageError

Address = tuple[str, int]
_LONGEST = 8192  # bytes of a request
_SECONDS = 2.0  # for a request from its first to its last byte
_AT_ONCE = 8


def metrics_address(text: str, listen: str) -> Address:
    """The address of the page.

    Args:
        text: PORT, on this machine only, or HOST:PORT.
        listen: HOST:PORT of the clients.

    Raises:
        UsageError: If it is no address, or has the port of the clients.
    """
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535 or (colon and not host):
        raise UsageError(f"--metrics {text} is not an address: write PORT or HOST:PORT")
    if port == listen.rpartition(":")[2]:
        raise UsageError(f"--metrics {text}: choose another port than --listen has")
    return host.strip("[]") or "127.0.0.1", int(port)


class MetricsPage:
    """A context in which figures are served over HTTP.

    Whoever reaches the address reads them, so it should be one that only the operator reaches. A
    request is bounded in length and time, and so is the number of requests at once.

    Args:
        address: The host and the port; port 0 is a free one.
        text: Returns the figures.
    """

    def __init__(self, address: Address, text: Callable[[], str]) -> None:
        self.address = address
        self.text = text

    def __enter__(self) -> MetricsPage:
        """Opens the port.

        Raises:
            Failure: If the address cannot be used.
        """
        try:
            self._server = _listener(self.address, self.text)
        except OSError as error:
            host, port = self.address
            raise Failure(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _listener(address: Address, text: Callable[[], str]) -> ThreadingTCPServer:
    places = threading.BoundedSemaphore(_AT_ONCE)

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.sendall(_answer(_read(self.request), text))

    class Listener(ThreadingTCPServer):
        address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False

        def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
            return places.acquire(blocking=False)

        def finish_request(self, request: Any, client_address: Any) -> None:
            try:
                super().finish_request(request, client_address)
            finally:
                places.release()

    return Listener(address, Handler)


def _read(connection: socket.socket) -> bytes:
    """The head of a request; empty if it is too long or takes too long."""
    head, end = b"", time.monotonic() + _SECONDS
    while b"\r\n\r\n" not in head:
        connection.settimeout(max(end - time.monotonic(), 0.001))
        part = connection.recv(_LONGEST)
        head += part
        if not part or len(head) > _LONGEST:
            return b""
    return head


def _answer(head: bytes, text: Callable[[], str]) -> bytes:
    match head.split(b"\r\n", 1)[0].split(b" "):
        case [b"GET", b"/metrics", _]:
            status, body = "200 OK", text().encode()
        case [_, _, _]:
            status, body = "404 Not Found", b"only GET /metrics\n"
        case _:
            status, body = "400 Bad Request", b""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode() + body
