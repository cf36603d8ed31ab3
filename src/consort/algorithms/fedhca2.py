"""Encoders that avoid conflicts and decoders that attend to each other, each as much as it helps.

Lu, Huang, Yang, Sirejiding, Ding and Lu: FedHCA²: Towards Hetero-Client Federated Multi-Task
Learning, CVPR 2024, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from consort.aggregation.conflict_averse import Rescale, conflict_averse_factors
from consort.aggregation.cross_attention import Regard, attend
from consort.aggregation.min_norm import grams
from consort.algorithms.fedavg_parts import DECODERS, ENCODER, travelling
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NotNegative, Probability
from consort.core.messages import Each, Payload, Replies
from consort.core.params import Params, has_role, mean, weighted_sum
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining

MODEL, START, TAKEN = "model", "start", "taken"
Weights = dict[str, float]
"""By part of the model: the encoder as a whole, and every layer of every decoder."""


@dataclass(frozen=True)
class Server:
    """What every client is owed, how much it takes from others, and what that was last time.

    Models stay with their clients; `owed` is what each makes of its own before it trains again.
    `weights` are the paper's alpha (of the encoder) and beta (of the layers of decoders), and
    `speeds` their momenta; `common` is its U, and `attended` its A of those who answered last.
    """

    owed: dict[str, Payload]
    weights: dict[str, Weights]
    speeds: dict[str, Weights]
    common: Params
    attended: dict[str, Params]
    alike: dict[str, str]


@dataclass(frozen=True)
class FedHCA2(Algorithm[Server]):
    """Adds to every model what encoders agree on and what decoders attend to, by learnt weights."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("heads", "buffers")

    local: LocalTraining = LocalTraining()
    c: NotNegative = 0.4
    """How far from the mean, in its lengths, the common update of the encoders may be."""
    rescale: Rescale = 1
    """Whether the common update is divided by 1 (0), by 1 + c² (1) or by 1 + c (2)."""
    initial: Probability = 0.1
    """The weights of the common update and of attention before they are learnt."""
    hyper_lr: NotNegative = 0.01
    hyper_momentum: Probability = 0.9
    hyper_decay: NotNegative = 0.0001
    project: bool = True
    """Whether learnt weights stay between 0 and 1; else only what is used of them does."""

    def start(self, roster: Roster) -> Server:
        """Everybody is owed the common initial encoder, and has decoders of its own."""
        encoder = travelling(roster.shared(ENCODER))
        weights = {
            c: dict.fromkeys(map(self.part_of, travelling(roster.model(c))), self.initial)
            for c in roster.ids
        }
        speeds = {c: dict.fromkeys(parts, 0.0) for c, parts in weights.items()}
        owed = {c: {START: encoder} for c in roster.ids}
        return Server(owed, weights, speeds, Params({}), {}, roster.alike())

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains, and is owed what others contribute to that."""
        return self.exchanged(
            server, clients.ask(self.train, owed=owed_to(server, clients)), clients
        )

    def exchanged(self, server: Server, replies: Replies, clients: Clients) -> Server:
        """Weights are learnt, and with them it is said what to add."""
        updates: dict[str, Params] = replies.each("update")
        encoders = {c: update.only(ENCODER) for c, update in updates.items()}
        decoders = {c: update.only(DECODERS) for c, update in updates.items()}
        last = [server.common] if server.attended else []
        products = grams([*encoders.values(), *last], self.part_of)
        weights, speeds = self.learnt(server, replies, decoders, products)
        common = weighted_sum(list(encoders.values()), self.factors(replies, products).tolist())
        regard = Regard()
        attended = self.attended(decoders, regard)
        owed = {
            c: self.owed(encoders[c], group, common | attended[c], weights[c])
            | {"round": clients.round}
            for c, group in groups(encoders, server.alike).items()
        }
        self.note(clients, {c: weights[c] for c in replies}, regard)
        return Server(server.owed | owed, weights, speeds, common, attended, server.alike)

    def part_of(self, name: str) -> str:
        """The part of the model that a parameter shares its weight with."""
        return ENCODER if has_role(name, ENCODER) else name.rpartition(".")[0]

    def learnt(
        self,
        server: Server,
        replies: Replies,
        decoders: Mapping[str, Params],
        products: Mapping[str, Tensor],
    ) -> tuple[dict[str, Weights], dict[str, Weights]]:
        """One step for the weights of those who trained from what was added to them last time.

        Who goes on in the direction of what was added takes more of it. `products` are those of all
        encoders, and last of what was added to them.
        """
        weights, speeds = dict(server.weights), dict(server.speeds)
        for place, client in enumerate(replies):
            if client not in server.attended:
                continue
            seen = grams([decoders[client], server.attended[client]], self.part_of)
            slopes = {p: self.slope(matrix, place) for p, matrix in products.items()}
            slopes |= {p: self.slope(matrix, 0) for p, matrix in seen.items()}
            speeds[client] = {
                p: self.hyper_momentum * speeds[client][p]
                + (slopes[p] if 0 <= weight <= 1 else 0.0)
                + self.hyper_decay * weight
                for p, weight in weights[client].items()
            }
            moved = {p: w - self.hyper_lr * speeds[client][p] for p, w in weights[client].items()}
            weights[client] = {p: cut(w) for p, w in moved.items()} if self.project else moved
        return weights, speeds

    def slope(self, products: Tensor, place: int) -> float:
        """How a client's loss changes with a weight: by how it went on where it was pushed."""
        return -float(products[-1, place])

    def factors(self, replies: Replies, products: Mapping[str, Tensor]) -> Tensor:
        """Every encoder's factor in the paper's U, which is best for the one it is worst for."""
        return conflict_averse_factors(whole(products, len(replies)), self.c, self.rescale)

    def attended(self, decoders: Mapping[str, Params], regard: Regard) -> dict[str, Params]:
        """The paper's A: what decoders see in each other."""
        return attend(decoders, regard=regard)

    def owed(
        self, own: Params, group: Sequence[Params], added: Params, weights: Weights
    ) -> Payload:
        """What a client adds to its model; with others like it, that leads to their mean step."""
        shares = {p: cut(w) for p, w in weights.items()}
        if len(group) > 1:
            step = self.plus(mean(group) - own, added, shares)
            added, shares = added | step, shares | dict.fromkeys(map(self.part_of, step), 1.0)
        return {"added": added, "shares": shares}

    def note(self, clients: Clients, weights: Mapping[str, Weights], regard: Regard) -> None:
        """Keeps the weights of those who answered, and who attended to whom, for pictures."""
        for name in sorted({p for parts in weights.values() for p in parts}):
            of_part = {c: cut(parts[name]) for c, parts in weights.items() if name in parts}
            clients.note("weight_of_others", of_part, part=name)
        for pair, share in regard.shares().items():
            clients.note("attention", share, part=pair)

    @on_client
    def train(self, client: Client, owed: Payload) -> Payload:
        """Local epochs from the own model and what is owed to it; what they changed is sent."""
        before = self.install(client, owed)
        self.local.run(client)
        return self.answer(client, owed, before)

    def install(self, client: Client, owed: Payload) -> Params:
        """The own model with what is owed to it; of that model, what travels."""
        client.recall(MODEL)
        model = travelling(Params.of(client.model))
        if START in owed:
            model |= owed[START]
        elif client.state.get(TAKEN) != owed["round"]:  # else it is an answer that was lost
            model = self.plus(model, owed["added"], owed["shares"])
        model.load_into(client.model)
        return model

    def answer(self, client: Client, owed: Payload, before: Params) -> Payload:
        """By how much what travels has changed; the trained model is kept."""
        trained = Params.of(client.model)
        client.state[MODEL], client.state[TAKEN] = trained, owed.get("round", 0)
        return {"update": Params({name: trained[name] for name in before}) - before}

    def plus(self, model: Params, added: Params, shares: Weights) -> Params:
        """A model and what others contribute to it, every parameter times its share."""
        return Params(
            {n: torch.add(t, added[n], alpha=shares[self.part_of(n)]) for n, t in model.items()}
        )

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Everybody's own model on its own data."""
        return clients.ask(self.test, owed=owed_to(server, clients))

    @on_client
    def test(self, client: Client, owed: Payload) -> Payload:
        """Scores of the client's own model."""
        self.install(client, owed)
        return {"personal": client.score()}


def owed_to(server: Server, clients: Clients) -> Each:
    """What everybody is owed."""
    return Each({client: server.owed[client] for client in clients.ids})


def whole(products: Mapping[str, Tensor], count: int) -> Tensor:
    """The inner products of the first so many vectors, over all their parts."""
    return torch.stack(list(products.values())).sum(0)[:count, :count]


def groups(encoders: Mapping[str, Params], alike: Mapping[str, str]) -> dict[str, list[Params]]:
    """For every client the encoders of those that are like it, its own among them."""
    return {
        client: [encoder for other, encoder in encoders.items() if alike[other] == alike[client]]
        for client in encoders
    }


def cut(weight: float) -> float:
    """The weight that is used."""
    return min(max(weight, 0.0), 1.0)
