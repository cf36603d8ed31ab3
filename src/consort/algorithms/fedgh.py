"""Heads that are trained on the server, with the mean features of everybody's classes.

Yi, Wang, Liu, Shi and Yu: FedGH: Heterogeneous Federated Learning with Generalized Global Header,
ACM Multimedia 2023, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from consort.algorithm import Client, Clients, on_client
from consort.algorithms.fedproto import as_examples, prototypes_of
from consort.algorithms.lg_fedavg import LGFedAvg, Server
from consort.data.examples import Examples
from consort.errors import Failure, NoReplies, UsageError
from consort.local import LocalTraining, features_of
from consort.messages import Payload
from consort.optimizers import make_optimizer
from consort.params import Params
from consort.roster import Roster
from consort.types import Count, NotNegative


@dataclass(frozen=True)
class FedGH(LGFedAvg):
    """Global heads under private encoders: the server trains them on prototypes of classes."""

    server_epochs: Count = 100
    server_lr: NotNegative = 0.01

    def start(self, roster: Roster) -> Server:
        """The common initial heads, if the server can compute what they do."""
        heads = roster.shared("heads", "decoders")
        for name, tensor in heads.items():
            part = name.rpartition(".")[-1]
            if not name.startswith("heads.") or {"weight": 2, "bias": 1}.get(part) != tensor.ndim:
                raise UsageError(
                    f"fedgh trains heads of linear layers on the server, but {name!r} is no part "
                    "of such a head: choose an algorithm such as lg_fedavg"
                )
        return Server(heads)

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


def head_output(head: Params, features: Tensor) -> Tensor:
    """What a head of linear layers, with ReLU between them, makes of features."""
    output = features
    for number, name in enumerate(name for name in head if name.endswith("weight")):
        bias = head.get(f"{name.removesuffix('weight')}bias")
        output = F.linear(output.relu() if number else output, head[name], bias)
    return output


def class_loss(output: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy; a single output is the logit of class 1 against class 0."""
    if output.shape[1] == 1:
        return F.binary_cross_entropy_with_logits(output[:, 0], labels.to(output.dtype))
    return F.cross_entropy(output, labels)


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
