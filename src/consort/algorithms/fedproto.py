"""Unlike models that agree on where the classes lie among their features.

Tan, Long, Liu, Zhou, Lu, Jiang and Zhang: FedProto: Federated Prototype Learning across
Heterogeneous Clients, AAAI 2022, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NotNegative
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import Failure, NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import losses_of_features

MODEL = "model"
Prototypes = dict[str, dict[int, Tensor]]
"""For every task, the mean feature of each of its classes."""


@dataclass(frozen=True)
class Server:
    """The global prototypes of all classes that were ever sent."""

    prototypes: Prototypes


@dataclass(frozen=True)
class FedProto(Algorithm[Server]):
    """Shares mean features of classes, and pulls features towards them; no weights travel."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads")

    local: LocalTraining = LocalTraining()
    strength: NotNegative = 1.0
    """Weight of the pull, the paper's lambda: 0 is training alone."""

    def start(self, roster: Roster) -> Server:
        """All clients must have the same heads, so as many features; nothing is known yet."""
        roster.shared("heads", "decoders")
        return Server({})

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; a class's new prototype is the mean over the clients that have it."""
        replies = clients.ask(self.train, prototypes=server.prototypes)
        if not replies:
            raise NoReplies("no client trained")
        prototypes = dict(server.prototypes)
        for task, sent in as_examples(replies.each("prototypes").values()).items():
            means = class_means(sent.inputs, sent.targets[task])
            prototypes[task] = prototypes.get(task, {}) | means
        return Server(prototypes)

    @on_client
    def train(self, client: Client, prototypes: Prototypes) -> Payload:
        """Local epochs with the pull; the features seen meanwhile make the own prototypes."""
        client.recall(MODEL)
        seen = list[Examples]()

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            features = client.model.encoder(batch.inputs)
            seen.append(replace(batch, inputs=features.detach()))
            found = replace(batch, inputs=features)
            return losses_of_features(client, found) | pull(found, prototypes, self.strength)

        self.local.run(client, objective=objective)
        client.state[MODEL] = Params.of(client.model)
        return {"prototypes": prototypes_of(client, Examples.concatenate(seen)) if seen else {}}

    def evaluate(self, server: Server, clients: Clients) -> Replies:  # noqa: ARG002
        """Every client's own model."""
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        """Scores of the client's own model."""
        client.recall(MODEL)
        return {"personal": client.score()}


def pull(found: Examples, prototypes: Prototypes, strength: float) -> dict[str, Tensor]:
    """By task: the mean squared distance of features to the prototypes of their classes.

    Where there is no prototype, nothing pulls: the goal of such a feature is the feature itself.
    """
    terms = {}
    own = found.inputs.detach()
    for task, known in prototypes.items():
        labels = found.targets[task].tolist()
        goals = [known.get(label, feature) for label, feature in zip(labels, own, strict=True)]
        terms[f"{task} prototypes"] = strength * F.mse_loss(found.inputs, torch.stack(goals))
    return terms


def prototypes_of(client: Client, seen: Examples) -> Prototypes:
    """The mean feature of every class of every task of a client."""
    for task in client.tasks:
        if seen.targets[task].ndim != 1 or seen.targets[task].is_floating_point():
            raise Failure(
                f"examples have no classes in task {task!r}, so there are no prototypes: choose "
                "an algorithm such as lg_fedavg"
            )
    return {task: class_means(seen.inputs, seen.targets[task]) for task in client.tasks}


def class_means(features: Tensor, labels: Tensor) -> dict[int, Tensor]:
    """The mean feature of every class; a negative label is no class."""
    found = sorted(set(labels.tolist()))
    return {label: features[labels == label].mean(0) for label in found if label >= 0}


def as_examples(sent: Iterable[Prototypes]) -> dict[str, Examples]:
    """By task: everybody's prototypes as examples of their classes."""
    pairs: dict[str, list[tuple[int, Tensor]]] = {}
    for prototypes in sent:
        for task, means in prototypes.items():
            pairs.setdefault(task, []).extend(means.items())
    return {
        task: Examples(
            torch.stack([feature for _, feature in found]),
            {task: torch.tensor([label for label, _ in found])},
        )
        for task, found in pairs.items()
        if found
    }
