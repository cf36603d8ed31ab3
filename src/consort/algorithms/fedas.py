"""A shared encoder that every client first aligns with its own earlier one (FedAS).

Yang, Huang and Ye: FedAS: Bridging Inconsistency in Personalized Federated Learning, CVPR 2024.
`round` and `train` are Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.algorithms.fedper import FedPer, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Model, Number
from consort.core.messages import Payload
from consort.core.params import Params
from consort.data.examples import Examples
from consort.errors import Failure
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Objective, gradients_of_sum, task_losses
from consort.training.scoring import BATCH, recompute_statistics

FAINTEST = 1e-12
"""Added to every weight, so that the mean exists even if all gradients are zero."""


@dataclass(frozen=True)
class FedAS(FedPer):
    """FedPer that aligns received encoders and weights clients by their Fisher information."""

    alignment_lr: NonNegativeFloat = 0.01
    """Learning rate of the epoch in which the received encoder is aligned."""

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; the mean encoder, weighted by Fisher information, is the new one."""
        replies = clients.ask(self.train, encoder=server.encoder)
        return Server(replies.mean("encoder", weight="information"))

    @on_client(encoder=Model("encoder"), information=Number(0))
    def train(self, client: Client, encoder: Params) -> Payload:
        """Aligns the received encoder with the earlier one, then trains it with the heads."""
        self.install(client, encoder)
        self.local.run(client)
        trained = Params.of(client.model)
        client.state["own"] = trained
        return {"encoder": trained.only("encoder"), "information": self.information(client)}

    def install(self, client: Client, encoder: Params) -> None:
        """Loads the received encoder beneath the own heads; aligns it with an earlier one."""
        labelled = _labelled(client)
        if "own" not in client.state or not client.examples:
            encoder.load_into(client.model)
            return
        client.recall("own")
        alignment = _alignment(client, labelled)
        encoder.load_into(client.model)
        LocalTraining(lr=self.alignment_lr, batch=self.local.batch).run(
            client, objective=alignment, only=("encoder",)
        )

    def information(self, client: Client) -> float:
        """The trace of the empirical Fisher matrix: the sum of the batches' squared gradients."""
        _as_in_testing(client)
        params = list(client.model.parameters())
        total = FAINTEST
        for batch in client.data.train.batches(self.local.batch):
            losses = self.local.weighted(task_losses(client, batch))
            for grad in gradients_of_sum(losses, (), params):
                total += float(grad.square().sum())
        return total

    @on_client()
    def test(self, client: Client, encoder: Params) -> Payload:
        """Scores of the model that the client kept when it last took part."""
        encoder.load_into(client.model)
        client.recall("own")
        return {"personal": client.score()}


def _alignment(client: Client, tasks: list[str]) -> Objective:
    """The squared distance of features to their class mean under the client's earlier encoder."""
    train = client.data.train
    _as_in_testing(client)
    with torch.no_grad():
        features = torch.cat([client.model.encoder(part.inputs) for part in train.batches(BATCH)])
    prototypes = {task: _class_means(features, train.targets[task]) for task in tasks}

    def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
        found = client.model.encoder(batch.inputs)
        return {
            task: F.mse_loss(found, means[torch.searchsorted(classes, batch.targets[task])])
            for task, (classes, means) in prototypes.items()
        }

    return objective


def _class_means(features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The classes that occur, in order, and the mean feature of each."""
    classes, place = torch.unique(labels, return_inverse=True)
    means = [features[place == number].mean(0) for number in range(len(classes))]
    return classes, torch.stack(means)


def _labelled(client: Client) -> list[str]:
    """The tasks whose targets are classes."""
    targets = client.data.train.targets
    found = [t for t in client.tasks if targets[t].ndim == 1 and not targets[t].is_floating_point()]
    if not found:
        raise Failure(
            "fedas aligns encoders by the classes of examples, but no task of this client has "
            "any: choose an algorithm such as fedper"
        )
    return found


def _as_in_testing(client: Client) -> None:
    if client.model.batchnorm == "recompute":
        recompute_statistics(client.model, client.data.train)
    client.model.eval()
