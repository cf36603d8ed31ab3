"""A shared encoder with personal heads (FedPer).

Arivazhagan, Aggarwal, Singh and Choudhary: Federated Learning with Personalization Layers,
arXiv 1912.00818, 2019. `round` is Algorithm 1 (server), `train` Algorithm 2 (client), with the
encoder as base layers and decoders and heads as personalisation layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.contract import Count, Model
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
    """Averages encoders only: heads stay with their clients, whose labels may differ."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("decoders", "heads")
    averages: ClassVar = {"encoder": "examples"}
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """The common initial encoder."""
        return Server(roster.shared("encoder"))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; the mean encoder, weighted by examples, is the new global one."""
        replies = clients.ask(self.train, encoder=server.encoder)
        return Server(replies.mean("encoder", weight="examples"))

    @on_client(encoder=Model("encoder"), examples=Count())
    def train(self, client: Client, encoder: Params) -> Payload:
        """Local epochs of the global encoder together with the client's own heads."""
        self.install(client, encoder)
        self.fit(client)
        trained = Params.of(client.model)
        client.state["personal"] = trained.without("encoder")
        return {"encoder": trained.only("encoder"), "examples": client.examples}

    def fit(self, client: Client) -> None:
        """Trains encoder and heads together."""
        self.local.run(client)

    def install(self, client: Client, encoder: Params) -> None:
        """Loads the global encoder beneath the client's own heads."""
        client.recall("personal")
        encoder.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global encoder with every client's own heads."""
        return clients.ask(self.test, encoder=server.encoder)

    @on_client()
    def test(self, client: Client, encoder: Params) -> Payload:
        """Scores of the client's personal model."""
        self.install(client, encoder)
        return {"personal": client.score()}
