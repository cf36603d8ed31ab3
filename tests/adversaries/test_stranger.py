"""Somebody at the port without a key stops nobody, gets nothing through and costs little."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedconsort[flower]'")

from tests.adversaries.stranger import blind, siege
from tests.gateways import PULL, PUSH, Front, front
from tests.institutions import until

MEGABYTE = bytes(1 << 20)
REFUSED: list[str] = []


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory):
    with front(tmp_path_factory.mktemp("gateway"), refused=REFUSED.append) as made:
        yield made


def test_many_connections_do_not_delay_a_client(tmp_path: Path):
    """Five thousand by hand: python -m tests.adversaries.stranger load."""
    result = siege(tmp_path, 1200)
    assert result.failures == 0, result
    assert len(result.open) > 10, result
    assert result.delay < 1.0, result
    assert result.grown < 150 << 20, result


def sent_before_the_end(door: Front, first: bytes, more: bytes, most: int) -> int:
    """How many bytes a stranger gets rid of before the gateway ends the connection."""
    total = 0
    with door.connect() as raw:
        raw.settimeout(10)
        try:
            raw.sendall(first)
            while total < most:
                raw.sendall(more)
                total += len(more)
        except OSError:
            pass
    return total


def received(door: Front) -> int:
    connections = door.gateway._connections
    return sum(connection.received for connection in connections.strangers)


def test_headers_without_an_end_are_refused_early(door: Front):
    start = f"POST {PULL} HTTP/1.1\r\nhost: x\r\n".encode()
    line = b"x-long: " + b"a" * (1 << 16) + b"\r\n"
    assert sent_before_the_end(door, start, line, 100 << 20) < 8 << 20  # what the kernel takes
    assert REFUSED[-1] == "not a valid request"


@pytest.mark.parametrize("size", [60 << 20, 5 << 20])
def test_a_body_is_not_read_before_the_signature_is_checked(size, door: Front):
    forged = door.signed("a-0") | {"flwr-signature": door.signed("b-0")["flwr-signature"]}
    lines = [f"POST {PUSH} HTTP/1.1", "host: x", f"content-length: {size}"]
    head = "\r\n".join([*lines, *(f"{k}: {v}" for k, v in forged.items()), "", ""]).encode()
    with door.connect() as raw:
        raw.sendall(head)  # and nothing of the body
        assert raw.recv(1000).startswith(b"HTTP/1.1 401")
    before = len(door.heard)
    most = 0
    with door.connect() as raw:
        raw.sendall(head)
        try:
            for _ in range(size >> 20):
                raw.sendall(MEGABYTE)
                most = max(most, received(door))
        except OSError:
            pass
    assert most < 200_000
    assert len(door.heard) == before


@pytest.mark.parametrize(
    "request_",
    [
        b"\r\n\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n"
        b"content-length: 2\r\n\r\n",
        b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n"
        b"content-length: 4\r\n\r\n0\r\n\r\n",
        b"POST /v1/fleet/pull-messages HTTP/1.1\r\n flwr-public-key: folded\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST https://elsewhere/v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\n\r\n",
        b"CONNECT elsewhere:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_other_requests_end_the_connection(request_, door: Front):
    before = len(door.heard)
    with door.connect() as raw:
        raw.settimeout(10)
        raw.sendall(request_)
        answer = raw.recv(1000)
        assert answer.startswith(b"HTTP/1.1 4") or answer == b""
        while answer:
            answer = raw.recv(1000)
    assert len(door.heard) == before


def test_who_does_not_finish_is_cut_off_within_seconds(door: Front):
    def plain() -> socket.socket:
        return socket.create_connection(("127.0.0.1", door.port), timeout=20)

    silent, header = plain(), blind().wrap_socket(plain())
    header.sendall(f"POST {PULL} HTTP/1.1\r\nhost".encode())
    with silent, header:
        assert header.recv(10) == b""
        assert silent.recv(10) == b""
    until(lambda: not door.gateway._connections.strangers, 5)


def test_older_tls_is_not_spoken(door: Front):
    old = blind()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        socket.create_connection(("127.0.0.1", door.port), timeout=10) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        old.wrap_socket(plain)


def test_a_client_that_sends_much_at_once_does_not_fill_the_memory(tmp_path: Path):
    """Eight bodies at once: two of them are read, the others wait in the network."""
    with front(tmp_path, ("a-0",)) as door:
        door.gateway.allow("a-0")
        several = []
        for _ in range(8):
            raw = door.connect()
            headers = door.signed("a-0") | {"content-length": str(5 << 20)}
            lines = [f"POST {PUSH} HTTP/1.1", "host: x", *(f"{k}: {v}" for k, v in headers.items())]
            raw.sendall("\r\n".join([*lines, "", ""]).encode())
            raw.setblocking(False)
            several.append(raw)
        left = dict.fromkeys(several, 5 << 20)
        reading = door.gateway._connections.clients

        def push() -> int:
            for raw in left:
                if left[raw] > len(MEGABYTE):  # never all of it
                    with suppress(BlockingIOError, ssl.SSLWantWriteError):
                        left[raw] -= raw.send(MEGABYTE)
            return sum(c.received > 400_000 for c in reading.get("a-0", ()))

        most, end = 0, time.monotonic() + 30
        while most < 2 and time.monotonic() < end:
            most = push()
        most = max([most, *(push() for _ in range(400))])
        for raw in several:
            raw.close()
        assert most == 2
