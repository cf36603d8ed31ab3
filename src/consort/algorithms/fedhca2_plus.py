"""FedHCA² with one encoder at first, weights for every stage, and directions in place of lengths.

Our own variation. Few images of one task make a poor encoder: in the first rounds all train one,
and only then each its own. Where updates are short, attention by dot products is nearly uniform,
and weights that are learnt from them hardly move; a client with many steps decides for all. What is
added to a model is judged by the client's own validation data, of which it tells one number.
The recipe fedhca2/ablation runs it without each of these ideas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.aggregation.cross_attention import Regard, attend
from consort.aggregation.min_norm import gram
from consort.algorithm import Client, Clients, on_client
from consort.algorithms.fedavg_parts import ENCODER
from consort.algorithms.fedhca2 import FedHCA2, Server, Weights, owed_to, whole
from consort.local import LocalTraining
from consort.messages import Payload, Replies
from consort.params import Params, has_role
from consort.types import NotNegative, Probability

REACHED = "loss reached"


@dataclass(frozen=True)
class FedHCA2Plus(FedHCA2):
    """FedHCA² that compares directions, stage by stage of the encoder."""

    together: Probability = 0.4
    """The share of all rounds, at the beginning, in which there is one encoder for everybody."""
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

    def round(self, server: Server, clients: Clients) -> Server:
        """At first there is one encoder for everybody; later each is put together as published."""
        one = all(ENCODER in owed for owed in server.owed.values())
        if clients.round > self.together * clients.rounds or not one:
            return super().round(server, clients)
        replies = clients.ask(self.train, owed=owed_to(server, clients))
        updates = [update.only(ENCODER) for update in replies.each("update").values()]
        start: Params = next(iter(server.owed.values()))[ENCODER]
        agreed = {ENCODER: one_step(start, updates)}
        return replace(server, owed=dict.fromkeys(server.owed, agreed))

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
        before = self.install(client, owed)
        loss = setback(client, self.local) if self.guard else {}
        steps = self.local.run(client).steps
        if self.guard:
            remember(client, self.local)
        return self.answer(client, owed, before) | {"steps": steps} | loss


def one_step(start: Params, updates: Sequence[Params]) -> Params:
    """From where all of them started, in the direction of their mean, as far as they mostly went.

    Updates of unlike tasks are all but orthogonal: the mean of n is √n times shorter than each.
    """
    products = gram(updates)
    length = math.sqrt(max(float(products.mean()), 0.0))
    stretch = float(products.diagonal().sqrt().mean()) / length if length else 1.0
    share = stretch / len(updates)
    return Params(
        {name: start[name] + share * sum(u[name] for u in updates) for name in updates[0]}
    )


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
