"""FedHCA² after FedAvg, with directions in the place of lengths, and a model alone to fall back on.

Our own variation. Few images of one task make a poor model: for most of the rounds all train one
encoder and one decoder, and only then each its own. Some tasks gain by that and some lose, so every
client trains a model alone, too, and uses the one that its validation data prefer. Where updates
are short, attention by dot products is nearly uniform, and weights that are learnt from them hardly
move; a client with many steps decides for all. What is added to a model is judged by the client's
own validation data, of which it tells one number. The recipe fedhca2/ablation runs it without each
of these ideas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.aggregation.cross_attention import Regard, attend
from consort.algorithm import Client, Clients, on_client
from consort.algorithms.fedavg_parts import ENCODER, averaged, travelling
from consort.algorithms.fedhca2 import START, FedHCA2, Server, Weights, owed_to, whole
from consort.local import LocalTraining
from consort.messages import Payload, Replies
from consort.params import Params, has_role
from consort.roster import Roster
from consort.types import NotNegative, Probability

ALONE, REACHED = "alone", "loss reached"


@dataclass(frozen=True)
class FedHCA2Plus(FedHCA2):
    """FedAvg of parts, then FedHCA² that compares directions; or what was trained alone."""

    together: Probability = 0.8
    """The share of all rounds, at the beginning, in which there is one model for everybody."""
    choose: bool = True
    """Whether clients train a model alone, too, and use what their validation data prefer."""
    initial: Probability = 0.0
    """The weights of the common update and of attention before they are learnt."""
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
        """Everybody is owed the common encoder and decoders, which the server knows at first."""
        server = super().start(roster)
        owed = {
            c: {START: travelling(roster.model(c)) | owed[START]} for c, owed in server.owed.items()
        }
        return replace(server, owed=owed)

    def round(self, server: Server, clients: Clients) -> Server:
        """At first there is one model for everybody; later each is put together as published."""
        one = all(START in owed for owed in server.owed.values())
        if clients.round > self.together * clients.rounds or not one:
            return super().round(server, clients)
        replies = clients.ask(self.train, owed=owed_to(server, clients))
        starts = {c: owed[START] for c, owed in server.owed.items()}
        trained = {c: starts[c] + update for c, update in replies.each("update").items()}
        owed = {c: {START: model} for c, model in averaged(starts, trained).items()}
        return replace(server, owed=owed)

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
            if reply.get("setback", 0.0) > 0:
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
        steps = torch.tensor(list(replies.each("steps").values()), dtype=torch.float64).clamp(min=1)
        scales = steps.mean() / steps
        scaled = scales[:, None] * whole(products, len(replies)) * scales
        return scales * conflict_averse_factors(scaled, self.c, self.rescale)

    def attended(self, decoders: Mapping[str, Params], regard: Regard) -> dict[str, Params]:
        """What decoders see in those that moved in their direction."""
        return attend(decoders, self.temperature, regard)

    @on_client
    def train(self, client: Client, owed: Payload) -> Payload:
        """Local epochs as published, and how much of a setback what was owed is."""
        if self.choose:
            self.train_alone(client)
        before = self.install(client, owed)
        loss = setback(client, self.local) if self.guard else {}
        steps = self.local.run(client).steps
        if self.guard:
            remember(client, self.local)
        return self.answer(client, owed, before) | {"steps": steps} | loss

    def train_alone(self, client: Client) -> None:
        """The same epochs for a model that takes nothing from others."""
        with client.beside(ALONE):
            self.local.run(client)
            client.keep(ALONE)

    @on_client
    def test(self, client: Client, owed: Payload) -> Payload:
        """Scores of the client's own model, or of the one trained alone if that is better."""
        self.install(client, owed)
        if self.choose:
            loss = validation_loss(client, self.local)
            with client.beside(ALONE):
                better_alone = validation_loss(client, self.local) < loss
            if better_alone:
                client.recall(ALONE)
        return {"personal": client.score()}


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
    return local.loss(client, client.data.validation or client.data.train)


def stage(name: str) -> str:
    """The name up to its first number, as in `encoder.stages.2`; without one, that of its layer."""
    words = name.split(".")
    numbers = [place for place, word in enumerate(words) if word.isdigit()]
    return ".".join(words[: numbers[0] + 1]) if numbers else name.rpartition(".")[0]
