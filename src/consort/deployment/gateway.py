"""The gateway: the only public port of a server. It forwards what admitted clients may send.

Flower's SuperLink accepts commands (start a run, stop it, list nodes) from anybody, on the same
port that clients use. Therefore it listens on this machine only, and clients connect to the
gateway.
"""

from __future__ import annotations

import ssl
import threading
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import uvicorn

from consort.deployment.credentials import ServerCredentials
from consort.errors import Failure

_ALLOWED = {
    f"/v1/fleet/{action}"
    for action in (
        "activate-node",
        "deactivate-node",
        "send-node-heartbeat",
        "pull-messages",
        "push-messages",
        "get-run",
        "get-fab",
        "push-object",
        "pull-object",
        "confirm-message-received",
    )
}
_KEY = b"flwr-public-key"
_HOP = {b"host", b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"te"}
_LARGEST = 64 << 20  # Flower splits larger messages into chunks of 5 MB
_REFRESH = 2.0


class Gateway:
    """An HTTPS server that forwards allowed requests of admitted clients, and nothing else.

    Args:
        listen: HOST:PORT to listen on.
        behind: HOST:PORT of the SuperLink.
        authority: The certificate that verifies the SuperLink.
        credentials: The server's credentials.
        seen: Is called with the name of a client whenever it sends a request.
    """

    def __init__(
        self,
        listen: str,
        behind: str,
        authority: bytes,
        credentials: ServerCredentials,
        seen: Callable[[str], Any] = lambda _: None,
    ) -> None:
        self.credentials = credentials
        self.behind = behind
        self.authority = authority
        self.seen = seen
        self._keys: dict[str, bytes] = {}
        self._fresh = 0.0
        self._client: httpx.AsyncClient | None = None
        host, _, port = listen.rpartition(":")
        folder = credentials.folder
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app,
                host=host.strip("[]"),
                port=int(port),
                ssl_certfile=str(folder / "server.pem"),
                ssl_keyfile=str(folder / "server.key"),
                ssl_ciphers="ECDHE+AESGCM:ECDHE+CHACHA20",
                log_config=None,
                access_log=False,
                lifespan="off",
                interface="asgi3",
                proxy_headers=False,
                server_header=False,
            )
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def start(self) -> None:
        """Opens the port.

        Raises:
            Failure: If the address cannot be used.
        """
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                config = self._server.config
                raise Failure(f"cannot listen on {config.host}:{config.port}: is the port in use?")
            time.sleep(0.05)

    def close(self) -> None:
        """Closes the port."""
        self._server.should_exit = True
        self._thread.join(5)

    @property
    def keys(self) -> Mapping[str, bytes]:
        """The keys of the admitted clients by name, at most two seconds old."""
        if time.monotonic() > self._fresh:
            self._keys = self.credentials.admitted()
            self._fresh = time.monotonic() + _REFRESH
        return self._keys

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        status, headers, body = await self._answer(scope, receive)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(
        self, scope: Any, receive: Any
    ) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        if scope["method"] != "POST" or scope["path"] not in _ALLOWED:
            return 404, [], b"not found"
        client = self._admitted(dict(scope["headers"]).get(_KEY, b""))
        if client is None:
            return 401, [], b"this key is not admitted"
        body = await _read(receive)
        if body is None:
            return 413, [], b"too large"
        self.seen(client)
        headers = [(name, value) for name, value in scope["headers"] if name not in _HOP]
        try:
            answer = await self._superlink().post(scope["path"], content=body, headers=headers)
        except httpx.TransportError:
            return 503, [], b"unavailable"
        passed = [(n.lower(), v) for n, v in answer.headers.raw if n.lower() not in _HOP]
        return answer.status_code, passed, answer.content

    def _admitted(self, header: bytes) -> str | None:
        """The client that a public key belongs to; the SuperLink checks that the sender owns it."""
        try:
            shown = b64decode(header, validate=True)
        except NotBase64:
            return None
        return next((name for name, key in self.keys.items() if key == shown), None)

    def _superlink(self) -> httpx.AsyncClient:
        if self._client is None:
            trust = ssl.create_default_context(cadata=self.authority.decode())
            self._client = httpx.AsyncClient(
                base_url=f"https://{self.behind}", verify=trust, timeout=60, trust_env=False
            )
        return self._client


async def _read(receive: Any) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _LARGEST or message["type"] == "http.disconnect":
            return None
        if not message.get("more_body"):
            return bytes(body)
