"""Shared heads on private encoders (LG-FedAvg).

Liang, Liu, Ziyin, Allen, Auerbach, Brent, Salakhutdinov and Morency: Think Locally, Act Globally:
Federated Learning with Local and Global Representations, arXiv 2001.01523, 2020. `round` is one
round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms._own_model import MODEL
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.contract import Count, Model
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """The global heads."""

    heads: Params


@dataclass(frozen=True)
class LGFedAvg(Algorithm[Server]):
    """Averages heads only: encoders stay with their clients and may be heterogeneous."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder",)
    averages: ClassVar = {"heads": "examples"}

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """The common initial heads; encoders may differ."""
        return Server(roster.shared("heads", "decoders"))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; the mean heads, weighted by examples, are the new global ones."""
        replies = clients.ask(self.train, heads=server.heads)
        return Server(replies.mean("heads", weight="examples"))

    @on_client(heads=Model(without=("encoder",)), examples=Count())
    def train(self, client: Client, heads: Params) -> Payload:
        """Local epochs of the client's own encoder together with the global heads."""
        trained = self.trained(client, heads)
        return {"heads": trained.without("encoder"), "examples": client.examples}

    def trained(self, client: Client, heads: Params) -> Params:
        """The client's model after local epochs with the global heads; the client remembers it."""
        self.install(client, heads)
        self.local.run(client)
        model = Params.of(client.model)
        client.state[MODEL] = model
        return model

    def install(self, client: Client, heads: Params) -> None:
        """Loads the client's own encoder and the global heads."""
        client.recall(MODEL)
        heads.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global heads on every client's own encoder."""
        return clients.ask(self.test, heads=server.heads)

    @on_client()
    def test(self, client: Client, heads: Params) -> Payload:
        """Scores of the client's own encoder with the global heads."""
        self.install(client, heads)
        return {"personal": client.score()}
