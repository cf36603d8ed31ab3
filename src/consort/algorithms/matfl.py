"""Encoders averaged among clients whose encoders are similar, whatever their tasks (MaT-FL).

Cai, Chen, Liu, Srinivasa, Lee, Kompella and Wang: Many-Task Federated Learning: A New Problem
Setting and A Simple Baseline, CVPR Workshops 2023. `round` is one round with dynamic grouping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from consort.aggregation.linkage import average_linkage
from consort.aggregation.min_norm import gram
from consort.algorithms._parts import entries_for
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import PositiveInt
from consort.core.contract import Model
from consort.core.messages import Payload, Replies
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
    """Every client gets the mean of the encoders that deviate from the mean as its own does."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("decoders", "heads")

    local: LocalTraining = LocalTraining()
    groups: Literal["hard", "soft"] = "hard"
    """Clusters, or for every client a mean weighted by the cosines of the others."""
    clusters: PositiveInt = 2

    def start(self, roster: Roster) -> Server:
        """The common initial encoder."""
        return Server(dict.fromkeys(roster.ids, roster.shared("encoder")))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; encoders with similar deviations from their mean are averaged."""
        replies = clients.ask(self.train, encoder=entries_for(server.encoders, clients))
        encoders = list(replies.each("encoder").values())
        rows = self.weights(cosines(encoders)).tolist()
        mixed = {client: mean(encoders, row) for client, row in zip(replies, rows, strict=True)}
        return Server(server.encoders | mixed)

    def weights(self, cosines: Tensor) -> Tensor:
        """Row i: the weights of all encoders in the new one of client i."""
        if self.groups == "soft":
            return cosines.clamp(min=0)
        same = torch.zeros_like(cosines)
        for group in average_linkage(1 - cosines, self.clusters):
            same[torch.tensor(group)[:, None], group] = 1.0
        return same

    @on_client(encoder=Model("encoder"))
    def train(self, client: Client, encoder: Params) -> Payload:
        """Local epochs of the received encoder with the client's own decoders and heads."""
        self.install(client, encoder)
        self.local.run(client)
        trained = Params.of(client.model)
        client.state["personal"] = trained.without("encoder")
        return {"encoder": trained.only("encoder")}

    def install(self, client: Client, encoder: Params) -> None:
        """Loads the received encoder beneath the client's own decoders and heads."""
        client.recall("personal")
        encoder.load_into(client.model)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every client's encoder with its own decoders and heads."""
        return clients.ask(self.test, encoder=entries_for(server.encoders, clients))

    @on_client()
    def test(self, client: Client, encoder: Params) -> Payload:
        """Scores of the client's personal model."""
        self.install(client, encoder)
        return {"personal": client.score()}


def cosines(encoders: Sequence[Params]) -> Tensor:
    """The cosines between the encoders' deviations from their mean; 1 on the diagonal."""
    centre = mean(encoders)
    products = gram([encoder - centre for encoder in encoders])
    lengths = products.diagonal().sqrt()
    scale = lengths.outer(lengths)
    found = torch.where(scale > 0, products / scale, 0.0)
    return found.fill_diagonal_(1.0)
