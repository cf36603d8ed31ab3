"""Flower's server together with the gateway in front of it and the nodes of a federation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from consort.core.limits import MESSAGE
from consort.deployment.courier import Courier, is_by_hand
from consort.deployment.credentials import ServerCredentials
from consort.deployment.envelope import ServerEnvelopes
from consort.deployment.gateway import Gateway
from consort.deployment.link.grid import FlowerGrid
from consort.deployment.link.superlink import SuperLink
from consort.engines.flower import Arrival, Parts, Post

_PER_MODEL, _SPARE = 16, 256 << 20  # more than any algorithm's answer, in models and in bytes


class FlowerStack:
    """A context in which Flower's server runs behind its gateway and the clients can connect.

    Args:
        listen: HOST:PORT of the gateway.
        credentials: The server's credentials.
        keys: The public keys of the clients of this run, by name.
        folder: Where Flower keeps its files.
        seen: Is called with the name of a client whenever it sends a request.
        report: Is told what the operator should know.
        refused: Is called with the reason whenever a request is refused.
        courier: Reaches the clients that have no connection, if there are any.
    """

    def __init__(
        self,
        listen: str,
        credentials: ServerCredentials,
        keys: Mapping[str, bytes],
        folder: Path,
        seen: Callable[[str], Any] = lambda _: None,
        report: Callable[[str], Any] = lambda _: None,
        refused: Callable[[str], Any] = lambda _: None,
        courier: Courier | None = None,
    ) -> None:
        self.envelopes = ServerEnvelopes.of(credentials, keys)
        self.link = SuperLink(folder)
        self.gateway = Gateway(
            listen, self.link.address, self.link.authority, credentials, seen, report, refused
        )
        self.keys, self.courier = keys, courier

    def __enter__(self) -> FlowerStack:
        with ExitStack() as stack:
            stack.callback(self.link.close)
            self.link.keep_alive()
            by_hand = self.courier.nodes if self.courier else {}
            nodes = {
                name: self.link.register(name, key)
                for name, key in self.keys.items()
                if name not in by_hand
            }
            self.nodes = nodes | by_hand
            self.gateway.nodes = nodes
            self.gateway.start()
            stack.callback(self.gateway.close)
            grid = FlowerGrid(self.link)
            stack.callback(grid.close)
            bounded = BoundedPost(grid, self.gateway, nodes)
            self.grid: Post = MixedPost(bounded, self.courier) if self.courier else bounded
            self._opened = stack.pop_all()
        return self

    def admits(self, client: str) -> bool:
        """Whether a client is still admitted with the key that it had at the start of the run."""
        return client in self.keys and self.gateway.keys.get(client) == self.keys[client]

    def bound_answers(self, parameters: int) -> None:
        """Says how large the models are, and so how large an answer can be.

        Args:
            parameters: The number of parameters of the largest model.
        """
        largest = min(_PER_MODEL * 4 * parameters + _SPARE, MESSAGE.bytes)
        self.gateway.largest_answer = largest
        if self.courier:
            self.courier.largest_answer = largest

    def __exit__(self, *error: object) -> None:
        self._opened.close()


class BoundedPost:
    """Messages through Flower, with a limit of what comes back.

    Args:
        grid: Sends and fetches messages.
        gateway: Counts what each client sends.
        nodes: The node of each client.
    """

    def __init__(self, grid: FlowerGrid, gateway: Gateway, nodes: Mapping[str, int]) -> None:
        self.grid, self.gateway = grid, gateway
        self._names = {node: name for name, node in nodes.items()}
        self._asked: dict[str, str] = {}

    def online(self) -> set[int]:
        """The nodes that are connected now."""
        return self.grid.online()

    def push(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:
        """Sends a message to each node, which may answer with `Gateway.largest_answer` bytes.

        Args:
            letters: Nodes, each with the parts of its message.
            seconds: How long the messages are valid.

        Returns:
            The id of each message.
        """
        names = [self._names[node] for node, _ in letters]
        for name in names:
            self.gateway.allow(name)
        ids = self.grid.push(letters, seconds)
        self._asked = dict(zip(ids, names, strict=True)) | self._asked
        return ids

    def pull(self, ids: Iterable[str]) -> list[Arrival]:
        """Fetches the replies that have arrived, and says who has sent more than allowed.

        Args:
            ids: The ids of the messages whose replies are wanted.
        """
        wanted = list(ids)
        arrivals = self.grid.pull(wanted)
        self._asked = {id_: name for id_, name in self._asked.items() if id_ in set(wanted)}
        reason = f"sent more than {self.gateway.largest_answer} bytes"
        return arrivals + [
            Arrival(id_, {}, refused=reason)
            for id_, name in self._asked.items()
            if name in self.gateway.too_large
        ]


class MixedPost:
    """Messages through Flower or by hand, whichever way a client is reached.

    Args:
        flower: Reaches clients that are connected.
        courier: Reaches clients that are not.
    """

    def __init__(self, flower: BoundedPost, courier: Courier) -> None:
        self.flower, self.courier = flower, courier

    def online(self) -> set[int]:
        """The nodes that messages can be sent to now."""
        return self.flower.online() | self.courier.online()

    def push(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:
        """Sends a message to each node.

        Args:
            letters: Nodes, each with the parts of its message.
            seconds: How long the messages are valid.

        Returns:
            The id of each message.
        """
        by_hand = self.courier.online()
        carried = [letter for letter in letters if letter[0] in by_hand]
        sent = [letter for letter in letters if letter[0] not in by_hand]
        ids = dict(zip((node for node, _ in sent), self._sent(sent, seconds), strict=True))
        ids |= zip((node for node, _ in carried), self.courier.push(carried, seconds), strict=True)
        return [ids[node] for node, _ in letters]

    def pull(self, ids: Iterable[str]) -> list[Arrival]:
        """Fetches the replies that have arrived.

        Args:
            ids: The ids of the messages whose replies are wanted.
        """
        wanted = list(ids)
        carried = [id_ for id_ in wanted if is_by_hand(id_)]
        sent = [id_ for id_ in wanted if not is_by_hand(id_)]
        return self.courier.pull(carried) + (self.flower.pull(sent) if sent else [])

    def _sent(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:
        return self.flower.push(letters, seconds) if letters else []
