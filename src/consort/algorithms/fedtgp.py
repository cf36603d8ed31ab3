"""Global prototypes that are trained to keep apart.

Zhang, Liu, Hua and Cao: FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced
Contrastive Learning for Data and Model Heterogeneity in Federated Learning, AAAI 2024, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from consort.algorithms.fedgh import fitted
from consort.algorithms.fedproto import (
    MODEL,
    Prototypes,
    as_examples,
    class_means,
    prototypes_of,
    pull,
)
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Count, NotNegative
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import features_of, losses_of_features


@dataclass(frozen=True)
class Server:
    """By task: the network that makes prototypes, and what it makes for every class."""

    makers: dict[str, Params]
    prototypes: Prototypes


@dataclass(frozen=True)
class FedTGP(Algorithm[Server]):
    """FedProto whose global prototypes the server trains, with a margin between classes."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads")

    local: LocalTraining = LocalTraining()
    strength: NotNegative = 1.0
    """Weight of the pull towards the global prototypes, the paper's lambda."""
    largest_margin: NotNegative = 100.0
    """The margin is never wider, the paper's tau."""
    server_epochs: Count = 100
    server_lr: NotNegative = 0.01

    def start(self, roster: Roster) -> Server:
        """All clients must have the same heads, so as many features; nothing is known yet."""
        roster.shared("heads", "decoders")
        return Server({}, {})

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; then the global prototypes learn to tell classes apart."""
        replies = clients.ask(self.train, prototypes=server.prototypes)
        if not replies:
            raise NoReplies("no client trained")
        generator = clients.generator
        makers, prototypes = dict(server.makers), dict(server.prototypes)
        for task, sent in as_examples(replies.each("prototypes").values()).items():
            labels = sent.targets[task].tolist()
            known = list(prototypes.get(task, {}))
            classes = known + sorted(set(labels) - set(known))
            maker = makers.get(task) or new_maker(sent.inputs.shape[1], generator)
            places = {label: place for place, label in enumerate(classes)}
            placed = replace(sent, targets={"place": torch.tensor([places[y] for y in labels])})
            maker = with_rows(maker, len(classes), generator)
            makers[task] = self.learn(maker, placed, generator)
            prototypes[task] = dict(zip(classes, make(makers[task]), strict=True))
        return Server(makers, prototypes)

    def learn(self, maker: Params, sent: Examples, generator: Generator) -> Params:
        """Every prototype that was sent shall be closest to that of its class, by the margin."""
        means = class_means(sent.inputs, sent.targets["place"])
        margin = min(widest_gap(torch.stack(list(means.values()))), self.largest_margin)

        def loss(maker: Params, batch: Examples) -> Tensor:
            return contrast(batch.inputs, make(maker), batch.targets["place"], margin)

        plan = LocalTraining(epochs=self.server_epochs, batch=self.local.batch)
        return fitted(maker, loss, plan.batches(sent, generator), self.server_lr)

    @on_client
    def train(self, client: Client, prototypes: Prototypes) -> Payload:
        """Local epochs with the pull; mean features as in testing are sent."""
        client.recall(MODEL)

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            found = replace(batch, inputs=client.model.encoder(batch.inputs))
            return losses_of_features(client, found) | pull(found, prototypes, self.strength)

        self.local.run(client, objective=objective)
        client.state[MODEL] = Params.of(client.model)
        return {"prototypes": prototypes_of(client, features_of(client)) if client.examples else {}}

    def evaluate(self, server: Server, clients: Clients) -> Replies:  # noqa: ARG002
        """Every client's own model."""
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        """Scores of the client's own model."""
        client.recall(MODEL)
        return {"personal": client.score()}


def new_maker(features: int, generator: Generator) -> Params:
    """A table without rows yet, and the two layers that every row goes through."""
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
    """The same network with so many rows, the new ones drawn at random."""
    rows = maker["rows"]
    new = torch.randn(count - len(rows), rows.shape[1], generator=generator)
    return maker | {"rows": torch.cat([rows, new])}


def make(maker: Params) -> Tensor:
    """One prototype from every row."""
    hidden = F.linear(maker["rows"], maker["hidden.weight"], maker["hidden.bias"]).relu()
    return F.linear(hidden, maker["out.weight"], maker["out.bias"])


def contrast(sent: Tensor, prototypes: Tensor, places: Tensor, margin: float) -> Tensor:
    """Cross entropy of negative distances, of which the right class's is longer by the margin."""
    distances = distances_between(sent, prototypes)
    return F.cross_entropy(-(distances + margin * F.one_hot(places, len(prototypes))), places)


def widest_gap(means: Tensor) -> float:
    """The largest distance of a class to the one next to it; none without another class."""
    if len(means) < 2:
        return 0.0
    return distances_between(means, means).fill_diagonal_(torch.inf).amin(1).max().item()


def distances_between(left: Tensor, right: Tensor) -> Tensor:
    """Euclidean; without matrix products, which lose small distances. No slope at zero."""
    return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
