"""Federated averaging.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data, AISTATS 2017, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, batchable, on_client
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """The global model."""

    model: Params


@dataclass(frozen=True)
class FedAvg(Algorithm[Server]):
    """Averages the models that clients train from the global one."""

    averages: ClassVar = {"model": "examples"}

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """The common initial model."""
        return Server(roster.shared())

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; the mean, weighted by examples, is the new global model."""
        replies = clients.ask(self.train, model=server.model)
        return Server(replies.mean("model", weight="examples"))

    @batchable
    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the global model."""
        model.load_into(client.model)
        self.local.run(client)
        return {"model": Params.of(client.model), "examples": client.examples}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global model on every client's data."""
        return clients.ask(self.test, model=server.model)

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the model as received."""
        model.load_into(client.model)
        return {"global": client.score()}
