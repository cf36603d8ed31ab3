"""Flower's server together with the gateway in front of it and the nodes of a federation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from consort.deployment.credentials import ServerCredentials
from consort.deployment.envelope import ServerEnvelopes
from consort.deployment.gateway import Gateway
from consort.deployment.link.grid import FlowerGrid
from consort.deployment.link.superlink import SuperLink


class FlowerStack:
    """A context in which Flower's server runs behind its gateway and the clients can connect.

    Args:
        listen: HOST:PORT of the gateway.
        credentials: The server's credentials.
        keys: The public keys of the clients of this run, by name.
        folder: Where Flower keeps its files.
        seen: Is called with the name of a client whenever it sends a request.
    """

    def __init__(
        self,
        listen: str,
        credentials: ServerCredentials,
        keys: Mapping[str, bytes],
        folder: Path,
        seen: Callable[[str], Any] = lambda _: None,
    ) -> None:
        self.envelopes = ServerEnvelopes.of(credentials, keys)
        self.link = SuperLink(folder)
        self.gateway = Gateway(listen, self.link.address, self.link.authority, credentials, seen)
        self.keys = keys

    def __enter__(self) -> FlowerStack:
        with ExitStack() as stack:
            stack.callback(self.link.close)
            self.link.keep_alive()
            self.nodes = {name: self.link.register(name, key) for name, key in self.keys.items()}
            self.gateway.start()
            stack.callback(self.gateway.close)
            self.grid = FlowerGrid(self.link)
            stack.callback(self.grid.close)
            self._opened = stack.pop_all()
        return self

    def admits(self, client: str) -> bool:
        """Whether a client is still admitted with the key that it had at the start of the run."""
        return client in self.keys and self.gateway.keys.get(client) == self.keys[client]

    def __exit__(self, *error: object) -> None:
        self._opened.close()
