"""Global prototypes that the server trains with a margin between classes (FedTGP).

Zhang, Liu, Hua and Cao: FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced
Contrastive Learning for Data and Model Heterogeneity in Federated Learning, AAAI 2024. `round` is
one round of Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from consort.algorithms._own_model import MODEL, OwnModel
from consort.algorithms._prototypes import (
    Prototypes,
    as_examples,
    class_means,
    fitted,
    prototypes_of,
    pull,
)
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, PositiveInt
from consort.core.contract_groups import ByClass, ByTask, Features
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import features_of, losses_of_features


@dataclass(frozen=True)
class Server:
    """By task: the network that generates prototypes, and the prototype of every class."""

    makers: dict[str, Params]
    prototypes: Prototypes


@dataclass(frozen=True)
class FedTGP(OwnModel, Algorithm[Server]):
    """FedProto whose global prototypes the server trains, with a margin between classes."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads")

    local: LocalTraining = LocalTraining()
    strength: NonNegativeFloat = 1.0
    """Weight of the pull towards the global prototypes, the paper's lambda."""
    largest_margin: NonNegativeFloat = 100.0
    """The upper bound of the margin, the paper's tau."""
    server_epochs: PositiveInt = 100
    server_lr: NonNegativeFloat = 0.01

    def start(self, roster: Roster) -> Server:
        """No prototypes yet; all clients must have the same heads, and so as many features."""
        roster.shared("heads", "decoders")
        return Server({}, {})

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; then the server trains the global prototypes on what they sent."""
        replies = clients.ask(self.train, prototypes=server.prototypes)
        if not replies:
            raise NoReplies("no client trained")
        generator = clients.generator
        makers, prototypes = dict(server.makers), dict(server.prototypes)
        for task, sent in as_examples(replies.each("prototypes").values()).items():
            labels = sent.targets[task].tolist()
            known = list(prototypes.get(task, {}))
            classes = known + sorted(set(labels) - set(known))
            maker = makers.get(task) or new_maker(sent.tensor.shape[1], generator)
            places = {label: place for place, label in enumerate(classes)}
            placed = replace(sent, targets={"place": torch.tensor([places[y] for y in labels])})
            maker = with_rows(maker, len(classes), generator)
            makers[task] = self.learn(maker, placed, generator)
            prototypes[task] = dict(zip(classes, make(makers[task]), strict=True))
        return Server(makers, prototypes)

    def learn(self, maker: Params, sent: Examples, generator: Generator) -> Params:
        """Trains the network so that what clients sent is closest to its class, by the margin."""
        means = class_means(sent.tensor, sent.targets["place"])
        margin = min(widest_gap(torch.stack(list(means.values()))), self.largest_margin)

        def loss(maker: Params, batch: Examples) -> Tensor:
            return contrast(batch.tensor, make(maker), batch.targets["place"], margin)

        plan = LocalTraining(epochs=self.server_epochs, batch=self.local.batch)
        return fitted(maker, loss, plan.batches(sent, generator), self.server_lr)

    @on_client(prototypes=ByTask(ByClass(Features())))
    def train(self, client: Client, prototypes: Prototypes) -> Payload:
        """Local epochs as in FedProto; prototypes are computed afterwards, in evaluation mode."""
        client.recall(MODEL)

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            found = replace(batch, inputs=client.model.encoder(batch.inputs))
            return losses_of_features(client, found) | pull(found, prototypes, self.strength)

        self.local.run(client, objective=objective)
        client.state[MODEL] = Params.of(client.model)
        return {"prototypes": prototypes_of(client, features_of(client)) if client.examples else {}}


def new_maker(features: int, generator: Generator) -> Params:
    """A table of embeddings, without rows yet, and the two layers that follow it."""
    limit = 1 / math.sqrt(features)
    shapes = {
        "hidden.weight": (features, features),
        "hidden.bias": (features,),
        "out.weight": (features, features),
        "out.bias": (features,),
    }
    layers = {
        name: torch.empty(shape).uniform_(-limit, limit, generator=generator)
        for name, shape in shapes.items()
    }
    return Params({"rows": torch.empty(0, features)} | layers)


def with_rows(maker: Params, count: int, generator: Generator) -> Params:
    """The network with `count` embeddings, the new ones drawn at random."""
    rows = maker["rows"]
    new = torch.randn(count - len(rows), rows.shape[1], generator=generator)
    return maker | {"rows": torch.cat([rows, new])}


def make(maker: Params) -> Tensor:
    """The prototype of every embedding."""
    hidden = F.linear(maker["rows"], maker["hidden.weight"], maker["hidden.bias"]).relu()
    return F.linear(hidden, maker["out.weight"], maker["out.bias"])


def contrast(sent: Tensor, prototypes: Tensor, places: Tensor, margin: float) -> Tensor:
    """Cross entropy of negative distances, the margin being added to that of the true class."""
    distances = distances_between(sent, prototypes)
    return F.cross_entropy(-(distances + margin * F.one_hot(places, len(prototypes))), places)


def widest_gap(means: Tensor) -> float:
    """The largest distance of a class to its nearest neighbour; 0 if there is only one class."""
    if len(means) < 2:
        return 0.0
    return distances_between(means, means).fill_diagonal_(torch.inf).amin(1).max().item()


def distances_between(left: Tensor, right: Tensor) -> Tensor:
    """Euclidean distances, without matrix products, which lose small ones; no gradient at 0."""
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
