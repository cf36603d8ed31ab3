"""A few global models, of which every client trains the one that fits it best (IFCA).

Ghosh, Chung, Yin and Ramchandran: An Efficient Framework for Clustered Federated Learning,
NeurIPS 2020. `round` is one round of Algorithm 1 with model averaging.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import PositiveInt
from consort.core.contract import Count, Model, Whole
from consort.core.messages import Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.errors import UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """One model for every cluster."""

    models: list[Params]


@dataclass(frozen=True)
class IFCA(Algorithm[Server]):
    """FedAvg inside clusters; in every round clients choose their cluster by its training loss."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    clusters: PositiveInt = 3
    """The number of models, the paper's k."""

    def start(self, roster: Roster) -> Server:
        """Models drawn independently: of equal ones all clients would choose the first."""
        if self.clusters > len(roster.ids):
            raise UsageError(
                f"ifca cannot form {self.clusters} clusters among {len(roster.ids)} client(s): set "
                f"clusters to at most {len(roster.ids)}"
            )
        return Server(roster.starts(self.clusters))

    def round(self, server: Server, clients: Clients) -> Server:
        """Every model becomes the mean of what its clients trained; one without clients stays."""
        replies = clients.ask(self.train, models=server.models)
        return Server(
            [averaged(model, number, replies) for number, model in enumerate(server.models)]
        )

    @on_client(model=Model(), cluster=lambda self, _: Whole(0, self.clusters - 1), examples=Count())
    def train(self, client: Client, models: list[Params]) -> Payload:
        """Local epochs from the model with the smallest loss on the training data."""
        chosen = self.local.choose(client, models, client.data.train)
        self.local.run(client)
        trained = Params.of(client.model)
        return {"model": trained, "cluster": chosen, "examples": client.examples}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model that each client chooses, on its data."""
        return clients.ask(self.test, models=server.models)

    @on_client(chosen_model=lambda self, _: Whole(0, self.clusters - 1))
    def test(self, client: Client, models: list[Params]) -> Payload:
        """Scores of the model that the client would train, as received, and its number."""
        chosen = self.local.choose(client, models, client.data.train)
        return {"personal": client.score(), "chosen_model": chosen}


def averaged(model: Params, cluster: int, replies: Replies) -> Params:
    """The mean of a cluster's models, weighted by examples; the old one if nobody chose it."""
    chosen = [reply for reply in replies.values() if reply["cluster"] == cluster]
    weights = [reply["examples"] for reply in chosen]
    return mean([reply["model"] for reply in chosen], weights) if any(weights) else model
