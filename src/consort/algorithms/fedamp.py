"""Personal models that are pulled towards those of similar clients (FedAMP).

Huang, Chu, Zhou, Wang, Liu, Pei and Zhang: Personalized Cross-Silo Federated Learning on Non-IID
Data, AAAI 2021. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.aggregation.distance_attention import distance_attention, squared_distances
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, PositiveFloat
from consort.core.contract import Model
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards


@dataclass(frozen=True)
class Server:
    """The last model of every client that has answered, and their mean for all others."""

    mean: Params
    models: dict[str, Params]


@dataclass(frozen=True)
class FedAMP(Algorithm[Server]):
    """Pulls every personal model towards a mean in which similar clients weigh more."""

    reports: ClassVar[str] = "personal"
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()
    strength: NonNegativeFloat = 1.0
    """The paper's lambda: the pull is strength / alpha times the distance."""
    alpha: PositiveFloat = 1.0
    """The server's step towards similar models."""
    sigma: PositiveFloat = 1.0
    """The distance over which the weight of a model falls to 1/e."""

    def start(self, roster: Roster) -> Server:
        """The common initial model stands for the mean."""
        return Server(roster.shared(), {})

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train their personal models w_i, pulled towards their cloud models u_i."""
        clouds = self.clouds(server)
        cloud = Each({client: clouds.get(client, server.mean) for client in clients.ids})
        replies = clients.ask(self.train, cloud=cloud)
        models = dict(sorted((server.models | replies.each("model")).items()))
        return Server(mean(list(models.values())), models)

    def clouds(self, server: Server) -> dict[str, Params]:
        """u_i = sum over j of xi_ij w_j, for every client that has answered before."""
        models = list(server.models.values())
        xi = distance_attention(squared_distances(models), self.alpha, self.sigma).tolist()
        rows = zip(server.models, xi, strict=True)
        return {client: mean(models, row) for client, row in rows}

    @on_client(model=Model())
    def train(self, client: Client, cloud: Params) -> Payload:
        """Local epochs on F_i(w) + lambda / (2 alpha) ||w - u_i||²."""
        client.state.get("model", cloud).load_into(client.model)
        self.local.run(client, adjust=pull_towards(cloud, self.strength / self.alpha))
        client.state["model"] = Params.of(client.model)
        return {"model": client.state["model"]}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every client's personal model on its own data."""
        return clients.ask(self.test, mean=server.mean)

    @on_client()
    def test(self, client: Client, mean: Params) -> Payload:
        """Scores of the personal model, or of the mean for a client that has not trained yet."""
        client.state.get("model", mean).load_into(client.model)
        return {"personal": client.score()}
