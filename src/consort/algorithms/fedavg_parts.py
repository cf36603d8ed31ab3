"""Federated averaging of encoders, and of all decoders whatever their task.

McMahan, Moore, Ramage, Hampson and Agüera y Arcas: Communication-Efficient Learning of Deep
Networks from Decentralized Data, AISTATS 2017, adapted to unlike tasks as in Lu et al.: FedHCA²,
CVPR 2024; with `mu`, FedProx (Li et al., MLSys 2020) in the same way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from consort.aggregation.cross_attention import Place
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NotNegative
from consort.core.messages import Each, Payload, Replies
from consort.core.params import BUFFERS, Params, has_role
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards

ENCODER, DECODERS = "encoder", "decoders"


@dataclass(frozen=True)
class Server:
    """What every client gets: one encoder, and one decoder for all its tasks."""

    models: dict[str, Params]


@dataclass(frozen=True)
class FedAvgParts(Algorithm[Server]):
    """Averages all encoders, and all decoders over clients and tasks; heads stay at home."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("heads", "buffers")

    local: LocalTraining = LocalTraining()
    mu: NotNegative = 0.0
    """The strength of a pull towards what was received: that of FedProx."""

    def start(self, roster: Roster) -> Server:
        """The common initial encoder and everybody's own decoders."""
        encoder = travelling(roster.shared(ENCODER))
        return Server({c: encoder | travelling(roster.model(c)) for c in roster.ids})

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; tensors with one place in encoders or decoders become their mean."""
        replies = clients.ask(self.train, model=models_for(server, clients))
        return Server(averaged(server.models, replies.each("model")))

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from what was received, under the own heads."""
        install(client, model)
        self.local.run(client, adjust=pull_towards(model, self.mu) if self.mu else None)
        return answer(client)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """What everybody received, under its own heads."""
        return clients.ask(self.test, model=models_for(server, clients))

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the client's own model."""
        install(client, model)
        return {"personal": client.score()}


def travelling(model: Params) -> Params:
    """What is sent: encoder and decoders without their statistics."""
    return model.only(ENCODER, DECODERS).without(BUFFERS)


def install(client: Client, model: Params) -> None:
    """What was sent, under the client's own heads and statistics."""
    client.recall("own")
    model.load_into(client.model)


def answer(client: Client) -> Payload:
    """What is sent of a trained model; the rest is kept."""
    trained = Params.of(client.model)
    sent = travelling(trained)
    client.state["own"] = Params({n: t for n, t in trained.items() if n not in sent})
    return {"model": sent}


def models_for(server: Server, clients: Clients) -> Each:
    """What every client gets."""
    return Each({client: server.models[client] for client in clients.ids})


def place(name: str, tensor: Tensor) -> Place:
    """Where a tensor is in the encoder, or in a decoder whatever its task."""
    inside = name if has_role(name, ENCODER) else f"decoder.{name.split('.', 2)[2]}"
    return inside, tuple(tensor.shape)


def averaged(models: Mapping[str, Params], trained: Mapping[str, Params]) -> dict[str, Params]:
    """Everybody's model with the means of what some have trained; what nobody has trained stays."""
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
