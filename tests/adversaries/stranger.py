"""Somebody at the port, without a key: opens connections and does not finish what it begins.

python -m tests.adversaries.stranger PORT COUNT     holds them until its input ends
python -m tests.adversaries.stranger load [COUNT]   the load test by hand, 5,000 if not given
"""

from __future__ import annotations

import resource
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.gateways import PULL, signed
from tests.institutions import ROOT, Institutions, environment, free_port

KINDS = ("silent", "half a hello", "half a handshake", "half a header", "slow body")


def blind() -> ssl.SSLContext:
    """TLS of somebody who does not care whom it talks to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def hello() -> bytes:
    """The first message of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    handshake = blind().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return outgoing.read()


def besiege(port: int, count: int) -> list[socket.socket]:
    """Opens connections, of each kind in turn; those that the server ends stay ended."""
    context, first = blind(), hello()
    held: list[socket.socket] = []
    for number in range(count):
        with suppress(OSError):
            plain = socket.create_connection(("127.0.0.1", port), timeout=5)
            held.append(plain)
            match KINDS[number % len(KINDS)]:
                case "half a hello":
                    plain.sendall(first[: len(first) // 2])
                case "half a handshake":
                    plain.sendall(first)
                case "half a header":
                    held.append(context.wrap_socket(plain))
                    held[-1].sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: x\r\nx-a: ")
                case "slow body":
                    held.append(context.wrap_socket(plain))
                    held[-1].sendall(
                        b"POST /v1/fleet/push-object HTTP/1.1\r\nhost: x\r\n"
                        b"content-length: 5000000\r\n\r\nx"
                    )
    return held


@dataclass
class Siege:
    """What an admitted client noticed."""

    open: list[float]
    """Seconds of each request on a connection that was open before."""
    fresh: list[float]
    """Seconds of each request on a connection of its own."""
    quiet: list[float]
    """Seconds of each request before the stranger came: this machine may be busy."""
    failures: int
    grown: int
    """By how many bytes the memory of the gateway has grown."""
    seconds: float

    @property
    def delay(self) -> float:
        """By how many seconds the stranger has delayed a request at most."""
        return max(*self.open, *self.fresh) - max(self.quiet)

    def __str__(self) -> str:
        return (
            f"{len(self.open)} requests on an open connection, at most {max(self.open):.2f} s; "
            f"{len(self.fresh)} on new ones, at most {max(self.fresh):.2f} s; "
            f"without the stranger at most {max(self.quiet):.2f} s; {self.failures} failed; "
            f"memory grew by {self.grown >> 20} MiB; "
            f"{self.seconds:.0f} s in all"
        )


def siege(folder: Path, count: int) -> Siege:
    """An admitted client sends requests while a stranger opens connections."""
    institutions, port = Institutions(folder, ("a-0",)), free_port()
    home = institutions.folder / "a-0"
    trust = ssl.create_default_context(cafile=str(institutions.server.folder / "ca.pem"))
    result = Siege([], [], [], 0, 0, 0.0)

    def ask(client: httpx.Client, seconds: list[float]) -> None:
        begun = time.perf_counter()
        try:
            right = client.post(PULL, headers=signed(home, "a-0")).status_code == 200
        except httpx.TransportError:
            right = False
        seconds.append(time.perf_counter() - begun)
        result.failures += not right

    def one() -> httpx.Client:
        url = f"https://localhost:{port}"
        return httpx.Client(base_url=url, verify=trust, timeout=30, trust_env=False)

    with program("tests.gateways", str(folder), str(port)) as gateway, one() as client:
        for _ in range(20):
            ask(client, result.quiet)
            with one() as other:
                ask(other, result.quiet)
        before, begun = memory(gateway.pid), time.monotonic()
        with program("tests.adversaries.stranger", str(port), str(count)) as stranger:
            ready = threading.Event()
            threading.Thread(target=lambda: (heard(stranger), ready.set()), daemon=True).start()
            while not ready.wait(0.05):
                ask(client, result.open)
                with one() as other:
                    ask(other, result.fresh)
            for _ in range(10):  # while all of them are held
                ask(client, result.open)
                with one() as other:
                    ask(other, result.fresh)
            result.grown = memory(gateway.pid) - before
        result.seconds = time.monotonic() - begun
    return result


@contextmanager
def program(module: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A module in a process of its own, until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    )
    try:
        if module == "tests.gateways":
            heard(process)
        yield process
    finally:
        process.kill()
        process.communicate()


def heard(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def memory(process: int) -> int:
    """The memory that a process has, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if sys.argv[1] == "load":
        with tempfile.TemporaryDirectory() as place:
            print(siege(Path(place), int(sys.argv[2]) if len(sys.argv) > 2 else 5000))
    else:
        kept = besiege(int(sys.argv[1]), int(sys.argv[2]))
        print(len(kept), flush=True)
        sys.stdin.read()
