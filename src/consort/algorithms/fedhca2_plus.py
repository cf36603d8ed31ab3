"""FedHCA² among kinds of clients, by directions, with a guard.

Our own variation. Clients that are alike have one model, heads included, and count as one. Kinds of
clients exchange as published, but compare directions: where updates are short, attention by dot
products is nearly uniform, and weights that are learnt from them hardly move; a client with many
steps decides for all. What is added to a model is judged by the clients' own validation data, of
which they tell one number. The recipe fedhca2/ablation runs it without each of these ideas.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

import torch
from torch import Tensor

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.aggregation.cross_attention import Regard, attend
from consort.algorithms.fedavg_parts import ENCODER, travelling
from consort.algorithms.fedhca2 import START, FedHCA2, Server, Weights, owed_to, whole
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import NotNegative
from consort.core.messages import Payload, Replies
from consort.core.params import BUFFERS, Params, has_role
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.local import LocalTraining

REACHED = "loss reached"


@dataclass(frozen=True)
class FedHCA2Plus(FedHCA2):
    """FedHCA² among kinds of clients by directions; who was set back takes less."""

    private: ClassVar[tuple[str, ...]] = ("buffers",)

    as_one: bool = True
    """Whether clients that are alike have one model, heads included, or each its own."""
    hyper_lr: NotNegative = 0.02
    temperature: NotNegative = 0.3
    """Decoders attend by softmax(cosine / temperature); with 0, by dot products as published."""
    stages: bool = True
    """Whether every stage of an encoder has a weight of its own, or the encoder one."""
    cosine: bool = True
    """Whether weights are learnt from cosines, or from dot products as published."""
    per_step: bool = True
    """Whether encoders agree on what everybody would do in the same number of steps."""
    guard: bool = True
    """Whether a client's weights are halved where what was added has raised its loss."""

    def start(self, roster: Roster) -> Server:
        """The initial model of every kind; heads stay with a client that is the only one."""
        server = super().start(roster)
        alike = server.alike if self.as_one else {client: client for client in roster.ids}
        count = Counter(alike.values())
        models = {k: roster.model(k).without(BUFFERS) | server.owed[k][START] for k in count}
        models = {k: model if count[k] > 1 else travelling(model) for k, model in models.items()}
        return replace(
            server,
            owed={client: {START: models[kind]} for client, kind in alike.items()},
            weights={kind: server.weights[kind] for kind in models},
            speeds={kind: server.speeds[kind] for kind in models},
            alike=alike,
        )

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains the model of its kind; then kinds exchange."""
        replies = clients.ask(self.train, owed=owed_to(server, clients))
        kinds = as_one(replies, server.alike)
        after = self.exchanged(server, kinds, clients)
        models = {
            kind: self.with_added(server.owed[kind][START] + answer["update"], after.owed[kind])
            for kind, answer in kinds.items()
        }
        renewed = {c: {START: models[k]} for c, k in server.alike.items() if k in models}
        return replace(after, owed=server.owed | renewed)

    def with_added(self, model: Params, owed: Payload) -> Params:
        """A model and what others contribute to its encoder and decoders."""
        return model | self.plus(travelling(model), owed["added"], owed["shares"])

    def part_of(self, name: str) -> str:
        """The stage or layer that a parameter shares its weight with."""
        if not (self.stages and has_role(name, ENCODER)):
            return super().part_of(name)
        return stage(name)

    def learnt(
        self,
        server: Server,
        replies: Replies,
        decoders: Mapping[str, Params],
        products: Mapping[str, Tensor],
    ) -> tuple[dict[str, Weights], dict[str, Weights]]:
        """One step as published; but whoever was set back takes half as much from now on."""
        weights, speeds = super().learnt(server, replies, decoders, products)
        for client, reply in replies.items():
            if self.guard and reply.get("setback", 0.0) > 0:
                weights[client] = {p: w / 2 for p, w in server.weights[client].items()}
                speeds[client] = dict.fromkeys(weights[client], 0.0)
        return weights, speeds

    def slope(self, products: Tensor, place: int) -> float:
        """Between -1 and 1, however short the updates have become."""
        slope = super().slope(products, place)
        if not self.cosine:
            return slope
        lengths = math.sqrt(float(products[-1, -1]) * float(products[place, place]))
        return slope / lengths if lengths else 0.0

    def factors(self, replies: Replies, products: Mapping[str, Tensor]) -> Tensor:
        """Updates count as if everybody had taken the mean number of steps."""
        if not self.per_step:
            return super().factors(replies, products)
        steps = torch.tensor(list(replies.each("steps").values()), dtype=torch.float64)
        scales = steps.mean() / steps
        scaled = scales[:, None] * whole(products, len(replies)) * scales
        return scales * conflict_averse_factors(scaled, self.c, self.rescale)

    def attended(self, decoders: Mapping[str, Params], regard: Regard) -> dict[str, Params]:
        """What decoders see in those that moved in their direction."""
        return attend(decoders, self.temperature, regard)

    @on_client
    def train(self, client: Client, owed: Payload) -> Payload:
        """Local epochs as published, and what validation data say of what was owed."""
        before = self.install(client, owed)
        told = setback(client, self.local) if self.guard else {}
        steps = self.local.run(client).steps
        if self.guard:
            remember(client, self.local)
        return self.answer(client, owed, before) | {"steps": steps} | told


def as_one(replies: Replies, alike: Mapping[str, str]) -> Replies:
    """One answer for all clients of a kind: the mean of theirs, by their steps."""
    found = {}
    for kind in dict.fromkeys(alike[client] for client in replies):
        group = Replies({c: reply for c, reply in replies.items() if alike[c] == kind})
        steps = {client: max(number, 1) for client, number in group.each("steps").items()}
        found[kind] = {"update": group.mean("update", steps), "steps": fmean(steps.values())}
        if setbacks := [reply["setback"] for reply in group.values() if "setback" in reply]:
            found[kind]["setback"] = fmean(setbacks)
    return Replies(found)


def setback(client: Client, local: LocalTraining) -> Payload:
    """How much worse the model is than the one the client had when it had trained last."""
    if REACHED not in client.state:
        return {}
    return {"setback": validation_loss(client, local) - client.state[REACHED]}


def remember(client: Client, local: LocalTraining) -> None:
    """Keeps how good the model is that the client has trained."""
    client.state[REACHED] = validation_loss(client, local)


def validation_loss(client: Client, local: LocalTraining) -> float:
    """On the validation data, or on the training data where there are none."""
    return local.loss(client, judges(client))


def judges(client: Client) -> Examples:
    """The examples by which a client judges models."""
    return client.data.validation or client.data.train


def stage(name: str) -> str:
    """The name up to its first number, as in `encoder.stages.2`; without one, that of its layer."""
    words = name.split(".")
    numbers = [place for place, word in enumerate(words) if word.isdigit()]
    return ".".join(words[: numbers[0] + 1]) if numbers else name.rpartition(".")[0]
