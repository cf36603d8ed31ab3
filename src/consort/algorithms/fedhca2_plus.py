"""FedHCA² after one encoder for all, among kinds of clients, with a model alone to fall back on.

Our own variation. Few images of one task make a poor encoder: in the first rounds there is one for
all. Clients that are alike have one model, heads included, and count as one. Kinds of clients later
exchange as published, but compare directions: where updates are short, attention by dot products is
nearly uniform, and weights that are learnt from them hardly move; a client with many steps decides
for all. What is added to a model is judged by the clients' own validation data, of which they tell
one number. Some tasks lose by all that, so every client trains a model alone, too, and those that
are alike use the one that their validation data prefer. The recipe fedhca2/ablation runs it without
each of these ideas.
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
from consort.aggregation.one_encoder import is_one, one_step
from consort.algorithm import Client, Clients, on_client
from consort.algorithms.fedavg_parts import ENCODER, travelling
from consort.algorithms.fedhca2 import START, FedHCA2, Server, Weights, owed_to, whole
from consort.data.examples import Examples
from consort.local import LocalTraining
from consort.messages import Payload, Replies
from consort.params import BUFFERS, Params, has_role
from consort.roster import Roster
from consort.types import NotNegative, Probability

ALONE, LOST, REACHED = "alone", "loss alone", "loss reached"


@dataclass(frozen=True)
class FedHCA2Plus(FedHCA2):
    """One encoder, then FedHCA² among kinds by directions; or what was trained alone."""

    private: ClassVar[tuple[str, ...]] = ("buffers",)

    together: Probability = 0.4
    """The share of all rounds, at the beginning, in which all kinds have one encoder."""
    as_one: bool = True
    """Whether clients that are alike have one model, heads included, or each its own."""
    choose: bool = True
    """Whether clients train a model alone, too, and use what their validation data prefer."""
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
        """Everybody trains the model of its kind; then kinds share or exchange."""
        replies = clients.ask(self.train, owed=owed_to(server, clients))
        kinds = as_one(replies, server.alike)
        starts = {kind: server.owed[kind][START] for kind in server.weights}
        planned = clients.round <= self.together * clients.rounds
        if planned and is_one(start.only(ENCODER) for start in starts.values()):
            return renewed(server, with_one_encoder(starts, kinds), kinds)
        after = self.exchanged(server, kinds, clients)
        models = {
            kind: self.with_added(starts[kind] + answer["update"], after.owed[kind])
            for kind, answer in kinds.items()
        }
        return renewed(replace(after, owed=server.owed), models, kinds)

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
        alone = client.state.get(LOST)
        if self.choose:
            self.train_alone(client)
        before = self.install(client, owed)
        told = self.judged(client, alone) if self.guard or self.choose else {}
        steps = self.local.run(client).steps
        if self.guard or self.choose:
            remember(client, self.local)
        return self.answer(client, owed, before) | {"steps": steps} | told

    def train_alone(self, client: Client) -> None:
        """The same epochs for a model that takes nothing from others."""
        with client.beside(ALONE):
            self.local.run(client)
            client.keep(ALONE)
            client.state[LOST] = validation_loss(client, self.local)

    def judged(self, client: Client, alone: float | None) -> Payload:
        """How much of a setback the model is, and how much better the one trained alone was."""
        told = setback(client, self.local)
        if told and alone is not None:
            lost = client.state[REACHED] + told["setback"]
            told["better"] = (lost - alone) * len(judges(client))
        return told

    @on_client
    def test(self, client: Client, owed: Payload) -> Payload:
        """Scores of the model of its kind, or of the one trained alone if that was better."""
        self.install(client, owed)
        if owed.get(ALONE):
            client.recall(ALONE)
        return {"personal": client.score()}


def with_one_encoder(starts: dict[str, Params], kinds: Replies) -> dict[str, Params]:
    """The models of all kinds after a round in which they had one encoder."""
    updates: dict[str, Params] = kinds.each("update")
    if not updates:
        return {}
    one = one_step(
        next(iter(starts.values())).only(ENCODER), [u.only(ENCODER) for u in updates.values()]
    )
    trained = {kind: starts[kind] + update for kind, update in updates.items()}
    return {kind: model | one for kind, model in (starts | trained).items()}


def renewed(server: Server, models: Mapping[str, Params], kinds: Replies) -> Server:
    """Clients are owed the new models of their kinds, and told which of them were better alone."""
    told = {kind: {ALONE: answer.get("better", 0.0) > 0} for kind, answer in kinds.items()}
    owed = {
        client: {START: models[kind], ALONE: server.owed[client].get(ALONE, False)}
        | told.get(kind, {})
        for client, kind in server.alike.items()
        if kind in models
    }
    return replace(server, owed=server.owed | owed)


def as_one(replies: Replies, alike: Mapping[str, str]) -> Replies:
    """One answer for all clients of a kind: the mean of theirs, by their steps."""
    found = {}
    for kind in dict.fromkeys(alike[client] for client in replies):
        group = Replies({c: reply for c, reply in replies.items() if alike[c] == kind})
        steps = {client: max(number, 1) for client, number in group.each("steps").items()}
        found[kind] = {"update": group.mean("update", steps), "steps": fmean(steps.values())}
        for key in ("setback", "better"):
            if numbers := [reply[key] for reply in group.values() if key in reply]:
                found[kind][key] = fmean(numbers)
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
