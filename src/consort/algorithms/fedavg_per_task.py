"""Federated averaging among the clients that learn the same.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data, AISTATS 2017, Algorithm 1, once for every task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """One model for all clients that are alike, and for every client whose model that is."""

    models: dict[str, Params]
    alike: dict[str, str]


@dataclass(frozen=True)
class FedAvgPerTask(Algorithm[Server]):
    """Averages models among clients with the same tasks; the others do not concern them."""

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """The initial model of every task."""
        alike = roster.alike()
        return Server({first: roster.model(first) for first in alike.values()}, alike)

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains the model of its task; their mean is the new one."""
        replies = clients.ask(self.train, model=models_for(server.models, server.alike, clients))
        return Server(server.models | means(replies, server.alike), server.alike)

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the model of the task."""
        model.load_into(client.model)
        self.local.run(client)
        return {"model": Params.of(client.model), "examples": client.examples}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model of its task on every client's data."""
        return clients.ask(self.test, model=models_for(server.models, server.alike, clients))

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the model as received."""
        model.load_into(client.model)
        return {"global": client.score()}


def models_for(models: Mapping[str, Params], alike: Mapping[str, str], clients: Clients) -> Each:
    """For every client the model of its task."""
    return Each({client: models[alike[client]] for client in clients.ids})


def means(replies: Replies, alike: Mapping[str, str]) -> dict[str, Params]:
    """The mean model, weighted by examples, of every task that somebody answered for."""
    found = {}
    for first in dict.fromkeys(alike[client] for client in replies):
        group = Replies({c: reply for c, reply in replies.items() if alike[c] == first})
        found[first] = group.mean("model", weight="examples")
    return found
