"""Heterogeneous models that share only the mean features of classes (FedProto).

Tan, Long, Liu, Zhou, Lu, Jiang and Zhang: FedProto: Federated Prototype Learning across
Heterogeneous Clients, AAAI 2022. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from consort.algorithms._own_model import MODEL, OwnModel
from consort.algorithms._prototypes import (
    Prototypes,
    as_examples,
    class_means,
    prototypes_of,
    pull,
)
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract_groups import ByClass, ByTask, Features
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import losses_of_features


@dataclass(frozen=True)
class Server:
    """The global prototypes of all classes that were ever sent."""

    prototypes: Prototypes


@dataclass(frozen=True)
class FedProto(OwnModel, Algorithm[Server]):
    """Shares prototypes of classes and pulls features towards them; no weights travel."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads")

    local: LocalTraining = LocalTraining()
    strength: NonNegativeFloat = 1.0
    """Weight of the pull, the paper's lambda: 0 is local training."""

    def start(self, roster: Roster) -> Server:
        """No prototypes yet; all clients must have the same heads, and so as many features."""
        roster.shared("heads", "decoders")
        return Server({})

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; the prototype of a class is the mean over the clients that have it."""
        replies = clients.ask(self.train, prototypes=server.prototypes)
        if not replies:
            raise NoReplies("no client trained")
        prototypes = dict(server.prototypes)
        for task, sent in as_examples(replies.each("prototypes").values()).items():
            means = class_means(sent.tensor, sent.targets[task])
            prototypes[task] = prototypes.get(task, {}) | means
        return Server(prototypes)

    @on_client(prototypes=ByTask(ByClass(Features())))
    def train(self, client: Client, prototypes: Prototypes) -> Payload:
        """Local epochs on the loss plus lambda times the distance to the prototypes.

        The features of the batches of these epochs give the client's own prototypes.
        """
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
