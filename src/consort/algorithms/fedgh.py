"""Global heads that the server trains on the clients' class means (FedGH).

Yi, Wang, Liu, Shi and Yu: FedGH: Heterogeneous Federated Learning with Generalized Global Header,
ACM Multimedia 2023. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Generator, Tensor

from consort.algorithms._prototypes import as_examples, fitted, prototypes_of
from consort.algorithms.lg_fedavg import LGFedAvg, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import NonNegativeFloat, PositiveInt
from consort.core.contract_groups import ByClass, ByTask, Features
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.linear_heads import class_loss, head_output, linear_heads
from consort.training.local import LocalTraining
from consort.training.objectives import features_of


@dataclass(frozen=True)
class FedGH(LGFedAvg):
    """Global heads on private encoders: the server trains the heads on prototypes of classes."""

    server_epochs: PositiveInt = 100
    server_lr: NonNegativeFloat = 0.01

    def start(self, roster: Roster) -> Server:
        """The common initial heads, which the server must be able to compute."""
        return Server(linear_heads(roster, "fedgh"))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; then the server trains the heads on all prototypes that they sent."""
        replies = clients.ask(self.train, heads=server.heads)
        if not replies:
            raise NoReplies("no client trained")
        generator = clients.generator
        heads = server.heads
        for task, sent in as_examples(replies.each("prototypes").values()).items():
            heads = heads | self.learn(heads.only(f"heads.{task}"), sent, task, generator)
        return Server(heads)

    def learn(self, head: Params, sent: Examples, task: str, generator: Generator) -> Params:
        """One task's head after epochs on the prototypes."""

        def loss(head: Params, batch: Examples) -> Tensor:
            return class_loss(head_output(head, batch.tensor), batch.targets[task])

        plan = LocalTraining(epochs=self.server_epochs, batch=self.local.batch)
        return fitted(head, loss, plan.batches(sent, generator), self.server_lr)

    @on_client(prototypes=ByTask(ByClass(Features(of_head=True), of_head=True)))
    def train(self, client: Client, heads: Params) -> Payload:
        """Local epochs with the global heads; prototypes are computed in evaluation mode."""
        self.trained(client, heads)
        return {"prototypes": prototypes_of(client, features_of(client)) if client.examples else {}}
