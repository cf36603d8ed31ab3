"""Federated averaging (FedAvg).

McMahan, Moore, Ramage, Hampson and Agüera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data, AISTATS 2017. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, batchable, on_client
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """The global model, the paper's w."""

    model: Params


@dataclass(frozen=True)
class FedAvg(Algorithm[Server]):
    """Averages the models that clients train from the global one."""

    averages: ClassVar = {"model": "examples"}
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """The common initial model."""
        return Server(roster.shared())

    def round(self, server: Server, clients: Clients) -> Server:
        """w = sum over k of n_k / n w_k: the mean of the trained models, weighted by examples."""
        replies = clients.ask(self.train, model=server.model)
        return Server(replies.mean("model", weight="examples"))

    @batchable
    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """ClientUpdate of Algorithm 1: local epochs from the global model."""
        model.load_into(client.model)
        self.local.run(client)
        return {"model": Params.of(client.model), "examples": client.examples}
