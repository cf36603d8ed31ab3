"""A gateway on this machine, before something that stands in for Flower's SuperLink.

python -m tests.gateways FOLDER PORT     serves until its input ends
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from consort.deployment.credentials import ClientCredentials, ServerCredentials
from consort.deployment.gateway import Gateway
from consort.deployment.keys import public_bytes
from consort.deployment.link.local import make_local_credentials
from tests.institutions import Institutions, free_port

PULL = "/v1/fleet/pull-messages"
PUSH = "/v1/fleet/push-object"


@dataclass
class Behind:
    """Takes every request, and remembers it."""

    folder: Path
    requests: list[tuple[str, dict[str, str], int]] = field(default_factory=list)

    def __enter__(self) -> Behind:
        make_local_credentials(self.folder)
        heard = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                heard.append((self.path, dict(self.headers), len(body)))
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "link.pem", self.folder / "link.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@dataclass
class Front:
    """An open gateway, its clients and what gets through it."""

    gateway: Gateway
    institutions: Institutions
    port: int
    heard: list[tuple[str, dict[str, str], int]]

    @property
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.institutions.server.folder / "ca.pem"))

    def client(self) -> httpx.Client:
        url = f"https://localhost:{self.port}"
        return httpx.Client(base_url=url, verify=self.trust, timeout=30, trust_env=False)

    def post(self, headers: Any, path: str = PULL, content: bytes = b"") -> httpx.Response:
        with self.client() as client:
            return client.post(path, headers=headers, content=content)

    def connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return self.trust.wrap_socket(plain, server_hostname="localhost")

    def signed(self, name: str, **more: Any) -> dict[str, str]:
        return signed(self.institutions.folder / name, name, **more)


def signed(folder: Path, name: str, age: float = 0.0) -> dict[str, str]:
    """The headers with which a client's node signs a request."""
    key = ClientCredentials(folder, name).private_key
    moment = datetime.fromtimestamp(datetime.now(UTC).timestamp() - age, UTC).isoformat()
    signature = key.sign(moment.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "flwr-public-key": b64encode(public_bytes(key.public_key())).decode(),
        "flwr-timestamp": moment,
        "flwr-signature": b64encode(signature).decode(),
    }


@contextmanager
def front(folder: Path, names: tuple[str, ...] = ("a-0", "b-0"), **options: Any) -> Iterator[Front]:
    """A gateway that is open for these clients."""
    institutions = Institutions(folder, names)
    with opened(institutions.server, folder / "link", free_port(), **options) as (gateway, behind):
        port = int(gateway.listen.rpartition(":")[2])
        yield Front(gateway, institutions, port, behind.requests)


@contextmanager
def opened(
    credentials: ServerCredentials, folder: Path, port: int, **options: Any
) -> Iterator[tuple[Gateway, Behind]]:
    with Behind(folder) as behind:
        authority = (folder / "link-ca.pem").read_bytes()
        gateway = Gateway(f"localhost:{port}", behind.address, authority, credentials, **options)
        gateway.start()
        try:
            yield gateway, behind
        finally:
            gateway.close()


if __name__ == "__main__":
    place, number = Path(sys.argv[1]), int(sys.argv[2])
    with opened(ServerCredentials.open(place / "server"), place / "link", number):
        print("open", flush=True)
        sys.stdin.read()
