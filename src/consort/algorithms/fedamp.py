"""Personal models that attend to those of similar clients.

Huang, Chu, Zhou, Wang, Liu, Pei and Zhang: Personalized Cross-Silo Federated Learning on Non-IID
Data, AAAI 2021, Algorithm 1 (FedAMP).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from torch import Tensor

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NotNegative, Positive
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards


def squared_distances(models: Sequence[Params]) -> Tensor:
    """Between every two models, as a square matrix; statistics of BatchNorm do not count."""
    points = [model.without("buffers") for model in models]
    distances = torch.zeros(len(points), len(points), dtype=torch.float64)
    for i, j in combinations(range(len(points)), 2):
        distances[i, j] = distances[j, i] = (points[i] - points[j]).norm() ** 2
    return distances


def attention(distances: Tensor, alpha: float, sigma: float) -> Tensor:
    """Row i: the weights of all models in the cloud model of client i; they sum to 1.

    The others have alpha / sigma · exp(-distance / sigma), the distances measured in units of
    their mean. Where that would leave a model less than its share of a plain mean, the others are
    scaled down together.
    """
    count = len(distances)
    unit = distances.sum() / max(count * (count - 1), 1)
    relative = distances / unit if unit > 0 else distances
    others = (alpha / sigma * torch.exp(-relative / sigma)).fill_diagonal_(0)
    total, most = others.sum(1, keepdim=True), 1 - 1 / max(count, 1)
    others *= torch.where(total > most, most / total, 1.0)
    return others + torch.diag(1 - others.sum(1))


@dataclass(frozen=True)
class Server:
    """The last model of every client that has answered, and their mean for those that have not."""

    mean: Params
    models: dict[str, Params]


@dataclass(frozen=True)
class FedAMP(Algorithm[Server]):
    """Pulls every personal model towards a mean in which similar clients weigh more."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    strength: NotNegative = 1.0
    """The paper's lambda: the pull is strength / alpha times the distance."""
    alpha: Positive = 1.0
    """The server's step towards similar models."""
    sigma: Positive = 1.0
    """How fast attention falls with the distance."""

    def start(self, roster: Roster) -> Server:
        """The common initial model in the place of the mean."""
        return Server(roster.shared(), {})

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains its own model under the pull of its cloud model."""
        clouds = self.clouds(server)
        cloud = Each({client: clouds.get(client, server.mean) for client in clients.ids})
        replies = clients.ask(self.train, cloud=cloud)
        models = dict(sorted((server.models | replies.each("model")).items()))
        return Server(mean(list(models.values())), models)

    def clouds(self, server: Server) -> dict[str, Params]:
        """For every client the server knows, the mean of all models by its attention."""
        models = list(server.models.values())
        weights = attention(squared_distances(models), self.alpha, self.sigma).tolist()
        rows = zip(server.models, weights, strict=True)
        return {client: mean(models, row) for client, row in rows}

    @on_client
    def train(self, client: Client, cloud: Params) -> Payload:
        """Local epochs of the own model, pulled towards the cloud model."""
        client.state.get("model", cloud).load_into(client.model)
        self.local.run(client, adjust=pull_towards(cloud, self.strength / self.alpha))
        client.state["model"] = Params.of(client.model)
        return {"model": client.state["model"]}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every client's own model on its own data."""
        return clients.ask(self.test, mean=server.mean)

    @on_client
    def test(self, client: Client, mean: Params) -> Payload:
        """Scores of the own model; of the mean of the others, before there is one."""
        client.state.get("model", mean).load_into(client.model)
        return {"personal": client.score()}
