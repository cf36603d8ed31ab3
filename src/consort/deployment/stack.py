"""Flower's server, the port before it, and the nodes of a federation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from consort.deployment.credentials import ServerCredentials
from consort.deployment.gateway import Front
from consort.deployment.link.post import Post
from consort.deployment.link.superlink import SuperLink


class Hub:
    """Flower's server with the port before it, and the nodes of the clients that may join."""

    def __init__(
        self,
        listen: str,
        credentials: ServerCredentials,
        keys: Mapping[str, bytes],
        folder: Path,
        seen: Callable[[str], Any] = lambda _: None,
    ) -> None:
        self.link = SuperLink(credentials.folder, folder)
        self.front = Front(listen, self.link.address, credentials, seen)
        self.keys = keys

    def __enter__(self) -> Hub:
        with ExitStack() as stack:
            stack.callback(self.link.close)
            self.link.keep_alive()
            self.nodes = {name: self.link.register(name, key) for name, key in self.keys.items()}
            self.front.start()
            stack.callback(self.front.close)
            self.post = Post(self.link)
            stack.callback(self.post.close)
            self._opened = stack.pop_all()
        return self

    def admits(self, client: str) -> bool:
        """Whether a client's key is still the one it was registered with, and valid."""
        return client in self.keys and self.front.keys.get(client) == self.keys[client]

    def __exit__(self, *error: object) -> None:
        self._opened.close()
