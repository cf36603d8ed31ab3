"""Federated averaging among clients with the same tasks.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data, AISTATS 2017, Algorithm 1, once for every task.
"""

from __future__ import annotations

from dataclasses import dataclass

from consort.algorithms._per_task import group_means, models_for
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.contract import Count, Model
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """The model of every group of clients with the same tasks, and the group of every client."""

    models: dict[str, Params]
    alike: dict[str, str]


@dataclass(frozen=True)
class FedAvgPerTask(Algorithm[Server]):
    """Averages models among clients with the same tasks and architecture only."""

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """The initial model of every group."""
        alike = roster.alike()
        return Server({first: roster.model(first) for first in alike.values()}, alike)

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train the model of their group, which becomes their mean."""
        replies = clients.ask(self.train, model=models_for(server.models, server.alike, clients))
        return Server(server.models | group_means(replies, server.alike), server.alike)

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the model of the group."""
        model.load_into(client.model)
        self.local.run(client)
        return {"model": Params.of(client.model), "examples": client.examples}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model of its group on every client's data."""
        return clients.ask(self.test, model=models_for(server.models, server.alike, clients))
