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

from consort.aggregation.combination import Update, joined
from consort.aggregation.conflict_averse import Rescale, conflict_averse_factors
from consort.aggregation.cross_attention import Regard, attend
from consort.aggregation.min_norm import grams
from consort.algorithm import Algorithm, Client, Clients, on_client
from consort.local import LocalTraining
from consort.messages import Each, Payload, Replies
from consort.params import BUFFERS, Params, has_role
from consort.roster import Roster
from consort.types import NotNegative, Probability

ENCODER, DECODERS = "encoder", "decoders"
Weights = dict[str, float]
"""By part of the model: the encoder as a whole, and every layer of every decoder."""


@dataclass(frozen=True)
class Server:
    """What every client was sent last, how much it takes from others, and what that was last time.

    `weights` are the paper's alpha (of the encoder) and beta (of the layers of decoders), and
    `speeds` their momenta; `common` is its U, and `attended` its A of those who answered last.
    """

    models: dict[str, Params]
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
        """The common initial encoder and everybody's own decoders."""
        encoder = travelling(roster.shared(ENCODER))
        models = {c: encoder | travelling(roster.model(c)) for c in roster.ids}
        weights = {
            c: dict.fromkeys(map(self.part_of, model), self.initial) for c, model in models.items()
        }
        speeds = {c: dict.fromkeys(parts, 0.0) for c, parts in weights.items()}
        return Server(models, weights, speeds, Params({}), {}, roster.alike())

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; then weights are learnt, and with them models are put together."""
        replies = clients.ask(self.train, model=models_for(server, clients))
        after: dict[str, Params] = replies.each("model")
        updates = {c: Update(server.models[c], model) for c, model in after.items()}
        encoders = [part(update, ENCODER) for update in updates.values()]
        added = [server.common] if server.attended else []
        products = grams([*encoders, *added], self.part_of)
        weights, speeds = self.learnt(server, replies, updates, products)
        shares = {c: self.shares(after[c], weights[c]) for c in updates}
        common, mixed = joined(
            encoders,
            self.factors(replies, products).tolist(),
            list(shares.values()),
            groups(list(updates), server.alike),
        )
        regard = Regard()
        decoders = {c: part(update, DECODERS) for c, update in updates.items()}
        attended = self.attended(decoders, regard)
        models = {
            client: encoder | plus(after[client].only(DECODERS), attended[client], shares[client])
            for client, encoder in zip(updates, mixed, strict=True)
        }
        self.note(clients, weights, regard)
        return Server(server.models | models, weights, speeds, common, attended, server.alike)

    def part_of(self, name: str) -> str:
        """The part of the model that a parameter shares its weight with."""
        return ENCODER if has_role(name, ENCODER) else name.rpartition(".")[0]

    def learnt(
        self,
        server: Server,
        replies: Replies,
        updates: Mapping[str, Update],
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
            decoders = part(updates[client], DECODERS)
            seen = grams([decoders, server.attended[client]], self.part_of)
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

    def attended(self, decoders: Mapping[str, Update], regard: Regard) -> dict[str, Params]:
        """The paper's A: what decoders see in each other."""
        return attend(decoders, regard=regard)

    def shares(self, model: Params, weights: Weights) -> dict[str, float]:
        """The weight of what others contribute to each parameter."""
        return {name: cut(weights[self.part_of(name)]) for name in model}

    def note(self, clients: Clients, weights: Mapping[str, Weights], regard: Regard) -> None:
        """Keeps the weights of this round's clients, and who attended to whom, for pictures."""
        for name in sorted({p for client in clients.ids for p in weights[client]}):
            of_part = {c: cut(weights[c][name]) for c in clients.ids if name in weights[c]}
            clients.note("weight_of_others", of_part, part=name)
        for pair, share in regard.shares().items():
            clients.note("attention", share, part=pair)

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the model that was put together for this client."""
        install(client, model)
        self.local.run(client)
        return answer(client)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Everybody's own model on its own data."""
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
    """Everybody's own model."""
    return Each({client: server.models[client] for client in clients.ids})


def part(update: Update, role: str) -> Update:
    """The part of an update with this role."""
    names = [name for name in update if has_role(name, role)]
    return Update(update.before, {name: update.after[name] for name in names})


def whole(products: Mapping[str, Tensor], count: int) -> Tensor:
    """The inner products of the first so many vectors, over all their parts."""
    return torch.stack(list(products.values())).sum(0)[:count, :count]


def groups(clients: Sequence[str], alike: Mapping[str, str]) -> list[list[int]]:
    """For every client the places of those that are like it, itself among them."""
    return [
        [place for place, other in enumerate(clients) if alike[other] == alike[client]]
        for client in clients
    ]


def plus(model: Params, added: Params, shares: Mapping[str, float]) -> Params:
    """A model and what others contribute to it, every parameter times its share."""
    return Params(
        {name: torch.add(t, added[name], alpha=shares[name]) for name, t in model.items()}
    )


def cut(weight: float) -> float:
    """The weight that is used."""
    return min(max(weight, 0.0), 1.0)
