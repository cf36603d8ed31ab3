"""Encoders averaged among those that moved alike, whatever their tasks.

Cai, Chen, Liu, Srinivasa, Lee, Kompella and Wang: Many-Task Federated Learning: A New Problem
Setting and A Simple Baseline (MaT-FL), CVPR Workshops 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from consort.aggregation.linkage import average_linkage
from consort.aggregation.min_norm import gram
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Count
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params, mean
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining


@dataclass(frozen=True)
class Server:
    """Every client's encoder."""

    encoders: dict[str, Params]


@dataclass(frozen=True)
class MaTFL(Algorithm[Server]):
    """Every client gets the mean of the encoders that are on its side of the mean of all."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("decoders", "heads")

    local: LocalTraining = LocalTraining()
    groups: Literal["hard", "soft"] = "hard"
    """Clusters, or a mean of its own for every client in which similar ones weigh more."""
    clusters: Count = 2
    threshold: float = 0.0
    """With `soft`: what is added to the cosine of two encoders before it becomes a weight."""

    def start(self, roster: Roster) -> Server:
        """The common initial encoder."""
        return Server(dict.fromkeys(roster.ids, roster.shared("encoder")))

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; encoders that point the same way from their mean are averaged."""
        replies = clients.ask(self.train, encoder=encoders_for(server, clients))
        encoders = list(replies.each("encoder").values())
        rows = self.weights(cosines(encoders)).tolist()
        mixed = {client: mean(encoders, row) for client, row in zip(replies, rows, strict=True)}
        return Server(server.encoders | mixed)

    def weights(self, cosines: Tensor) -> Tensor:
        """Row i: what every encoder weighs in that of client i."""
        if self.groups == "soft":
            return (cosines + self.threshold).clamp(min=0)
        same = torch.zeros_like(cosines)
        for group in average_linkage(1 - cosines, self.clusters):
            same[torch.tensor(group)[:, None], group] = 1.0
        return same

    @on_client
    def train(self, client: Client, encoder: Params) -> Payload:
        """Local epochs of the received encoder under the own decoders and heads."""
        self.install(client, encoder)
        self.local.run(client)
        trained = Params.of(client.model)
        client.state["personal"] = trained.without("encoder")
        return {"encoder": trained.only("encoder")}

    def install(self, client: Client, encoder: Params) -> None:
        """The received encoder under this client's own decoders and heads."""
        client.recall("personal")
        encoder.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Everybody's encoder under its own decoders and heads."""
        return clients.ask(self.test, encoder=encoders_for(server, clients))

    @on_client
    def test(self, client: Client, encoder: Params) -> Payload:
        """Scores of the client's personal model."""
        self.install(client, encoder)
        return {"personal": client.score()}


def encoders_for(server: Server, clients: Clients) -> Each:
    """Everybody's own encoder."""
    return Each({client: server.encoders[client] for client in clients.ids})


def cosines(encoders: Sequence[Params]) -> Tensor:
    """Of the angles between encoders as seen from their mean; everybody is like itself."""
    centre = mean(encoders)
    products = gram([encoder - centre for encoder in encoders])
    lengths = products.diagonal().sqrt()
    scale = lengths.outer(lengths)
    found = torch.where(scale > 0, products / scale, 0.0)
    return found.fill_diagonal_(1.0)
