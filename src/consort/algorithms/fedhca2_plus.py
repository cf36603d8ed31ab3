"""FedHCA² between groups of clients, by directions, with a guard.

Our variation of Lu et al.: FedHCA², CVPR 2024 (see `fedhca2`). It differs in six ways, each of
which an option switches off, as the recipe fedhca2/ablation does:

- `as_one`: clients with the same tasks and architecture are one group with one model, heads
  included; groups take the place of clients in Algorithms 1 and 2.
- `temperature`: attention is by cosine. By dot products it is nearly uniform if updates are short.
- `stages`: every stage of the encoder has its own alpha.
- `cosine`: alpha and beta are learnt from cosines. From dot products they hardly move.
- `per_step`: in U, updates count as if all had taken as many steps; else the longest dominates.
- `guard`: a group whose validation loss has risen by what was added takes half as much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import ClassVar

import torch
from torch import Tensor

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.aggregation.cross_attention import AttentionShares, attend
from consort.aggregation.min_norm import grams, total_gram
from consort.algorithms._guard import most_steps, remember, setback
from consort.algorithms._parts import DECODERS, ENCODER, entries_for, travelling
from consort.algorithms._per_task import by_group
from consort.algorithms.fedhca2 import START, FedHCA2, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import NonNegativeFloat
from consort.core.contract import Number, Same
from consort.core.contract_groups import Optional
from consort.core.messages import Payload, Replies
from consort.core.params import BUFFERS, has_role, weighted_sum
from consort.core.roster import Roster
from consort.errors import NoReplies
from consort.training.client import Client


@dataclass(frozen=True)
class FedHCA2Plus(FedHCA2):
    """FedHCA² between groups of clients, by directions; a group that was set back takes less."""

    private: ClassVar[tuple[str, ...]] = ("buffers",)

    as_one: bool = True
    """Whether clients with the same tasks have one model, heads included, or each its own."""
    hyper_lr: NonNegativeFloat = 0.02
    temperature: NonNegativeFloat = 0.3
    """Decoders attend by softmax(cosine / temperature); with 0, by dot products as published."""
    stages: bool = True
    """Whether every stage of an encoder has its own alpha, or the encoder has one."""
    cosine: bool = True
    """Whether weights are learnt from cosines, or from dot products as published."""
    per_step: bool = True
    """Whether updates count in U as if all clients had taken the same number of steps."""
    guard: bool = True
    """Whether a client's weights are halved where what was added has raised its loss."""

    def start(self, roster: Roster) -> Server:
        """The initial model of every group; heads stay with a client that is alone in its own."""
        server = super().start(roster)
        alike = server.alike if self.as_one else {client: client for client in roster.ids}
        count = Counter(alike.values())
        models = {k: roster.model(k).without(BUFFERS) | server.owed[k][START] for k in count}
        models = {k: model if count[k] > 1 else travelling(model) for k, model in models.items()}
        return replace(
            server,
            owed={client: {START: models[group]} for client, group in alike.items()},
            weights={group: server.weights[group] for group in models},
            speeds={group: server.speeds[group] for group in models},
            alike=alike,
        )

    def round(self, server: Server, clients: Clients) -> Server:
        """As FedHCA², with groups in the place of clients; the server itself adds U and A."""
        answers = clients.ask(self.train, owed=entries_for(server.owed, clients))
        if not answers:
            raise NoReplies("no client trained")
        replies = self.of_groups(answers, server.alike)
        delta_E = {k: reply["update"].only(ENCODER) for k, reply in replies.items()}
        delta_D = {k: reply["update"].only(DECODERS) for k, reply in replies.items()}
        last_U = [server.common] if server.attended else []
        products = grams([*delta_E.values(), *last_U], self.part_of)
        weights, speeds = self.learn(server, delta_D, products, self.cosine)
        for k, reply in replies.items():
            if self.guard and reply.get("setback", 0.0) > 0:
                weights[k] = {part: weight / 2 for part, weight in server.weights[k].items()}
                speeds[k] = dict.fromkeys(weights[k], 0.0)
        U = weighted_sum(list(delta_E.values()), self.factors(replies, products).tolist())
        A = attend(delta_D, self.temperature, attention := AttentionShares())
        owed = dict(server.owed)
        for k, reply in replies.items():
            model = server.owed[k][START] + reply["update"]
            model |= self.add(travelling(model), U | A[k], weights[k])
            owed |= {i: {START: model} for i, group in server.alike.items() if group == k}
        self.note(clients, {k: weights[k] for k in replies}, attention)
        return Server(owed, weights, speeds, U, A, server.alike)

    def of_groups(self, answers: Replies, alike: Mapping[str, str]) -> Replies:
        """One answer per group: the mean of its clients' answers, updates weighted by steps."""
        found = {}
        for k, group in by_group(answers, alike).items():
            steps = {client: max(number, 1) for client, number in group.each("steps").items()}
            found[k] = {"update": group.mean("update", steps), "steps": fmean(steps.values())}
            if setbacks := [reply["setback"] for reply in group.values() if "setback" in reply]:
                found[k]["setback"] = fmean(setbacks)
        return Replies(found)

    def part_of(self, name: str) -> str:
        """The stage or layer that a parameter shares its weight with."""
        return stage(name) if self.stages and has_role(name, ENCODER) else super().part_of(name)

    def factors(self, replies: Replies, products: Mapping[str, Tensor]) -> Tensor:
        """The factor of every Δθ in U."""
        steps = torch.tensor(list(replies.each("steps").values()), dtype=torch.float64)
        scales = steps.mean() / steps if self.per_step else torch.ones_like(steps)
        scaled = scales[:, None] * total_gram(products, len(replies)) * scales
        return scales * (conflict_averse_factors(scaled, self.c) / (1 + self.c**2))

    @on_client(
        update=lambda _, sent: Same(sent["owed"][START]),
        steps=lambda self, _: most_steps(self.local),
        setback=Optional(Number()),
    )
    def train(self, client: Client, owed: Payload) -> Payload:
        """Local epochs as published, and the setback on validation data by what was received."""
        before = self.install(client, owed)
        told = setback(client, self.local) if self.guard else {}
        steps = self.local.run(client).steps
        if self.guard:
            remember(client, self.local)
        return self.answer(client, owed, before) | {"steps": steps} | told


def stage(name: str) -> str:
    """The name up to its first number, as in `encoder.stages.2`; without one, that of its layer."""
    words = name.split(".")
    numbers = [place for place, word in enumerate(words) if word.isdigit()]
    return ".".join(words[: numbers[0] + 1]) if numbers else name.rpartition(".")[0]
