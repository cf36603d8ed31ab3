"""No federation: every client trains alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """Nothing: the server has no part in this."""


@dataclass(frozen=True)
class LocalOnly(Algorithm[Server]):
    """Every client trains its own model and sends nothing: the floor for all others."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads")

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:  # noqa: ARG002
        """Nothing to prepare."""
        return Server()

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody goes on training."""
        clients.ask(self.train)
        return server

    @on_client
    def train(self, client: Client) -> Payload:
        """Local epochs from where this client stopped last time."""
        client.recall("model")
        self.local.run(client)
        client.state["model"] = Params.of(client.model)
        return {}

    def evaluate(self, server: Server, clients: Clients) -> Replies:  # noqa: ARG002
        """Every client's own model on its own data."""
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        """Scores of the client's own model."""
        client.recall("model")
        return {"personal": client.score()}
