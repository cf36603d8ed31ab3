"""Federated averaging of encoders, and of all decoders whatever their task.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data, AISTATS 2017, adapted to heterogeneous tasks as in Lu et al.:
FedHCA², CVPR 2024, supplement C; with `mu`, FedProx (Li et al., MLSys 2020) in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from consort.aggregation.cross_attention import Place
from consort.algorithms._parts import (
    ENCODER,
    TRAVELLING,
    answer,
    entries_for,
    initial_parts,
    install,
)
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.messages import Payload, Replies
from consort.core.params import Params, has_role
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards


@dataclass(frozen=True)
class Server:
    """By client, the encoder and the decoders that it is sent."""

    models: dict[str, Params]


@dataclass(frozen=True)
class FedAvgParts(Algorithm[Server]):
    """Averages all encoders, and all decoders over clients and tasks; heads stay private."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("heads", "buffers")

    local: LocalTraining = LocalTraining()
    mu: NonNegativeFloat = 0.0
    """Weight of FedProx's proximal term."""

    def start(self, roster: Roster) -> Server:
        """The common initial encoder and every client's own decoders."""
        return Server(initial_parts(roster))

    def round(self, server: Server, clients: Clients) -> Server:
        """The plain mean of all encoders; in decoders, of tensors with the same name and shape."""
        replies = clients.ask(self.train, model=entries_for(server.models, clients))
        return Server(averaged(server.models, replies.each("model")))

    @on_client(model=TRAVELLING)
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the received encoder and decoders, with the client's own heads."""
        install(client, model)
        self.local.run(client, adjust=pull_towards(model, self.mu) if self.mu else None)
        return answer(client)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The averaged encoder and decoders with every client's own heads."""
        return clients.ask(self.test, model=entries_for(server.models, clients))

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the client's personal model."""
        install(client, model)
        return {"personal": client.score()}


def place(name: str, tensor: Tensor) -> Place:
    """The name of a tensor in the encoder, or in a decoder whatever its task, and its shape."""
    inside = name if has_role(name, ENCODER) else f"decoder.{name.split('.', 2)[2]}"
    return inside, tuple(tensor.shape)


def averaged(models: Mapping[str, Params], trained: Mapping[str, Params]) -> dict[str, Params]:
    """All models with the means of what was trained; what nobody has trained stays."""
    means = means_by_place(trained.values())
    return {
        client: Params({name: means.get(place(name, t), t) for name, t in model.items()})
        for client, model in models.items()
    }


def means_by_place(models: Iterable[Params]) -> dict[Place, Tensor]:
    """The plain mean of all tensors with the same place."""
    found: dict[Place, list[Tensor]] = defaultdict(list)
    for model in models:
        for name, tensor in model.items():
            found[place(name, tensor)].append(tensor)
    return {where: torch.stack(tensors).mean(0) for where, tensors in found.items()}
