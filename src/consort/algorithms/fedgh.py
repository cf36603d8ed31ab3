"""Heads that are trained on the server, with the mean features of everybody's classes.

Yi, Wang, Liu, Shi and Yu: FedGH: Heterogeneous Federated Learning with Generalized Global Header,
ACM Multimedia 2023, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from consort.algorithms.fedproto import as_examples, prototypes_of
from consort.algorithms.lg_fedavg import LGFedAvg, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import Count, NotNegative
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import Failure, NoReplies
from consort.training.client import Client
from consort.training.linear_heads import class_loss, head_output, linear_heads
from consort.training.local import LocalTraining
from consort.training.objectives import features_of
from consort.training.optimizers import make_optimizer


@dataclass(frozen=True)
class FedGH(LGFedAvg):
    """Global heads under private encoders: the server trains them on prototypes of classes."""

    server_epochs: Count = 100
    server_lr: NotNegative = 0.01

    def start(self, roster: Roster) -> Server:
        """The common initial heads, if the server can compute what they do."""
        return Server(linear_heads(roster, "fedgh"))

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; then the heads learn the classes of all prototypes that were sent."""
        replies = clients.ask(self.train, heads=server.heads)
        if not replies:
            raise NoReplies("no client trained")
        generator = clients.generator
        heads = server.heads
        for task, sent in as_examples(replies.each("prototypes").values()).items():
            heads = heads | self.learn(heads.only(f"heads.{task}"), sent, task, generator)
        return Server(heads)

    def learn(self, head: Params, sent: Examples, task: str, generator: Generator) -> Params:
        """One task's head after epochs on the prototypes that were sent."""

        def loss(head: Params, batch: Examples) -> Tensor:
            return class_loss(head_output(head, batch.inputs), batch.targets[task])

        plan = LocalTraining(epochs=self.server_epochs, batch=self.local.batch)
        return fitted(head, loss, plan.batches(sent, generator), self.server_lr)

    @on_client
    def train(self, client: Client, heads: Params) -> Payload:
        """Local epochs under the global heads; mean features as in testing are sent."""
        self.trained(client, heads)
        return {"prototypes": prototypes_of(client, features_of(client)) if client.examples else {}}


def fitted(
    params: Params,
    loss: Callable[[Params, Examples], Tensor],
    batches: Iterable[Examples],
    lr: float,
) -> Params:
    """Parameters after a step of gradient descent on every batch, on the server."""
    optimizer = make_optimizer("sgd")
    moving = Params({name: tensor.clone().requires_grad_() for name, tensor in params.items()})
    leaves = list(moving.values())
    values = [leaf.detach() for leaf in leaves]
    for batch in batches:
        found = loss(moving, batch)
        if not found.isfinite():
            raise Failure(f"the server's loss became {found.item()}: lower server_lr = {lr}")
        optimizer.step(values, list(torch.autograd.grad(found, leaves)), lr)
    return Params(dict(zip(moving, values, strict=True)))
