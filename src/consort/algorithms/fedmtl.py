"""Personal models as related tasks, regularised towards their mean (FedMTL).

The mean-regularised case of Smith, Chiang, Sanjabi and Talwalkar: Federated Multi-Task Learning
(MOCHA), NeurIPS 2017, after Evgeniou and Pontil: Regularized Multi-Task Learning, KDD 2004.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Model
from consort.core.messages import Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Adjust, pull_towards


@dataclass(frozen=True)
class Server:
    """The last model of every client that has answered, and their mean."""

    mean: Params
    models: dict[str, Params]


@dataclass(frozen=True)
class FedMTL(Algorithm[Server]):
    """Personal models with penalties on their squared distance to the mean and their length."""

    reports: ClassVar[str] = "personal"
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()
    lambda1: NonNegativeFloat = 0.01
    """Weight of the squared distance to the mean."""
    lambda2: NonNegativeFloat = 0.0001
    """Weight of the squared length of the model."""

    def start(self, roster: Roster) -> Server:
        """The common initial model stands for the mean."""
        return Server(roster.shared(), {})

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; the last models of absent clients still count in the mean."""
        replies = clients.ask(self.train, mean=server.mean)
        models = dict(sorted((server.models | replies.each("model")).items()))
        return Server(mean(list(models.values())), models)

    @on_client(model=Model())
    def train(self, client: Client, mean: Params) -> Payload:
        """Local epochs of the personal model with the penalties."""
        client.state.get("model", mean).load_into(client.model)
        self.local.run(client, adjust=self.penalty(mean))
        client.state["model"] = Params.of(client.model)
        return {"model": client.state["model"]}

    def penalty(self, mean: Params) -> Adjust:
        """Adds the gradient of lambda1 ||w - mean||² + lambda2 ||w||²."""
        related = pull_towards(mean, 2 * self.lambda1)
        small = pull_towards(mean.zeros(), 2 * self.lambda2)

        def adjust(
            names: Sequence[str], params: Sequence[Tensor], grads: Sequence[Tensor]
        ) -> Sequence[Tensor]:
            return small(names, params, related(names, params, grads))

        return adjust

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every client's personal model on its own data."""
        return clients.ask(self.test, mean=server.mean)

    @on_client()
    def test(self, client: Client, mean: Params) -> Payload:
        """Scores of the personal model, or of the mean for a client that has not trained yet."""
        client.state.get("model", mean).load_into(client.model)
        return {"personal": client.score()}
