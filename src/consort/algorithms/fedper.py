"""A shared encoder under personal heads.

Arivazhagan, Aggarwal, Singh and Choudhary: Federated Learning with Personalization Layers,
arXiv 1912.00818, 2019, Algorithms 1 and 2.
"""

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
    """The global encoder."""

    encoder: Params


@dataclass(frozen=True)
class FedPer(Algorithm[Server]):
    """Averages encoders only: heads stay with their clients, which may have other labels."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("decoders", "heads")
    averages: ClassVar = {"encoder": "examples"}

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """The common initial encoder."""
        return Server(roster.shared("encoder"))

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; the mean encoder is the new global one."""
        replies = clients.ask(self.train, encoder=server.encoder)
        return Server(replies.mean("encoder", weight="examples"))

    @on_client
    def train(self, client: Client, encoder: Params) -> Payload:
        """Local epochs of the global encoder and the own head together."""
        self.install(client, encoder)
        self.fit(client)
        trained = Params.of(client.model)
        client.state["personal"] = trained.without("encoder")
        return {"encoder": trained.only("encoder"), "examples": client.examples}

    def fit(self, client: Client) -> None:
        """Encoder and head move together."""
        self.local.run(client)

    def install(self, client: Client, encoder: Params) -> None:
        """The global encoder under this client's own head."""
        client.recall("personal")
        encoder.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global encoder under each client's own head."""
        return clients.ask(self.test, encoder=server.encoder)

    @on_client
    def test(self, client: Client, encoder: Params) -> Payload:
        """Scores of the client's personal model."""
        self.install(client, encoder)
        return {"personal": client.score()}
