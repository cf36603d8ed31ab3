"""Conflict-averse aggregation of encoders and attentive aggregation of decoders (FedHCA²).

Lu, Huang, Yang, Sirejiding, Ding and Lu: FedHCA²: Towards Hetero-Client Federated Multi-Task
Learning, CVPR 2024. `round` follows Algorithms 1 and 2 of the supplement in the paper's letters:

- Δθ_i: how training changed the encoder (E) and the decoders (D) of client i;
- U: the conflict-averse update of the encoders, the same for all;
- A_i: what the decoders of client i take from all decoders by attention;
- alpha_i, beta_i: how much of U and of A_i client i adds, learnt by the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from consort.aggregation.conflict_averse import conflict_averse_factors
from consort.aggregation.cross_attention import AttentionShares, attend
from consort.aggregation.hyper_weights import Weights, learnt, slopes
from consort.aggregation.min_norm import grams, total_gram
from consort.algorithms._own_model import MODEL
from consort.algorithms._parts import DECODERS, ENCODER, TRAVELLING, entries_for, travelling
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, Probability
from consort.core.messages import Payload, Replies
from consort.core.params import Params, has_role, mean, weighted_sum
from consort.core.roster import Roster
from consort.errors import NoReplies
from consort.training.client import Client
from consort.training.local import LocalTraining

START, TAKEN = "start", "taken"


@dataclass(frozen=True)
class Server:
    """What every client has to add to its model, and what that was made from.

    Models stay with their clients: `owed` is what each adds to its own before it trains again.
    """

    owed: dict[str, Payload]
    weights: dict[str, Weights]
    """By client, alpha (of the encoder) and beta (of every layer of its decoders)."""
    speeds: dict[str, Weights]
    """The momenta of these weights."""
    common: Params
    """U of the last round."""
    attended: dict[str, Params]
    """A_i of those who answered in the last round."""
    alike: dict[str, str]


@dataclass(frozen=True)
class FedHCA2(Algorithm[Server]):
    """Adds U to every encoder and A to every decoder, by weights that the server learns."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("heads", "buffers")

    local: LocalTraining = LocalTraining()
    c: NonNegativeFloat = 0.4
    """How far U may be from the mean update, as a multiple of the mean's length."""
    initial: Probability = 0.1
    """The initial value of alpha and beta."""
    hyper_lr: NonNegativeFloat = 0.01
    hyper_momentum: Probability = 0.9
    hyper_decay: NonNegativeFloat = 0.0001
    """Learning rate, momentum and weight decay of the SGD steps of alpha and beta."""

    def start(self, roster: Roster) -> Server:
        """The common initial encoder for all; every client has decoders of its own."""
        encoder = travelling(roster.shared(ENCODER))
        weights = {
            i: dict.fromkeys(map(self.part_of, travelling(roster.model(i))), self.initial)
            for i in roster.ids
        }
        speeds = {i: dict.fromkeys(parts, 0.0) for i, parts in weights.items()}
        owed = {i: {START: encoder} for i in roster.ids}
        return Server(owed, weights, speeds, Params({}), {}, roster.alike())

    def round(self, server: Server, clients: Clients) -> Server:
        """Clients train; the server learns alpha and beta, then computes U and A.

        U solves Equations 47 and 48, divided by 1 + c² as in the released code. A_i is
        softmax(Δθ_i Vᵀ / √d) V in every tensor, with the Δθ of all decoders as rows of V.
        """
        replies = clients.ask(self.train, owed=entries_for(server.owed, clients))
        if not replies:
            raise NoReplies("no client trained")
        delta_E = {i: reply["update"].only(ENCODER) for i, reply in replies.items()}
        delta_D = {i: reply["update"].only(DECODERS) for i, reply in replies.items()}
        last_U = [server.common] if server.attended else []
        products = grams([*delta_E.values(), *last_U], self.part_of)
        weights, speeds = self.learn(server, delta_D, products)
        factors = conflict_averse_factors(total_gram(products, len(replies)), self.c)
        U = weighted_sum(list(delta_E.values()), (factors / (1 + self.c**2)).tolist())
        A = attend(delta_D, shares=(attention := AttentionShares()))
        owed = {
            i: {**self.owed(i, delta_E, U | A[i], weights[i], server), "round": clients.round}
            for i in replies
        }
        self.note(clients, {i: weights[i] for i in replies}, attention)
        return Server(server.owed | owed, weights, speeds, U, A, server.alike)

    def learn(
        self,
        server: Server,
        delta_D: Mapping[str, Params],
        products: Mapping[str, Tensor],
        cosine: bool = False,
    ) -> tuple[dict[str, Weights], dict[str, Weights]]:
        """One step for alpha and beta of the clients that answered in the last round as well.

        Args:
            server: The state after the last round.
            delta_D: By client, the updates of its decoders.
            products: By part, the inner products of all clients' encoder updates, in the same
                order, and last of U of the last round.
            cosine: See `slopes`.
        """
        weights, speeds = dict(server.weights), dict(server.speeds)
        settings = self.hyper_lr, self.hyper_momentum, self.hyper_decay
        for place, (i, delta) in enumerate(delta_D.items()):
            if i in server.attended:
                seen = grams([delta, server.attended[i]], self.part_of)
                slope = slopes(products, place, cosine) | slopes(seen, 0, cosine)
                weights[i], speeds[i] = learnt(weights[i], speeds[i], slope, *settings)
        return weights, speeds

    def part_of(self, name: str) -> str:
        """The part of the model that a parameter shares its weight with."""
        return ENCODER if has_role(name, ENCODER) else name.rpartition(".")[0]

    def owed(
        self, i: str, delta_E: Mapping[str, Params], added: Params, weights: Weights, server: Server
    ) -> Payload:
        """What client i has to add to its trained model: alpha_i U and beta_i A_i.

        As in the released code, the encoders of clients with the same tasks take their mean step:
        what their own step lacks is added too.
        """
        alike = [delta for j, delta in delta_E.items() if server.alike[j] == server.alike[i]]
        if len(alike) > 1:
            step = self.add(mean(alike) - delta_E[i], added, weights)
            added, weights = added | step, weights | dict.fromkeys(map(self.part_of, step), 1.0)
        return {"added": added, "shares": weights}

    def add(self, model: Params, added: Params, weights: Weights) -> Params:
        """A model plus what is added to it, every parameter times the weight of its part."""
        return Params(
            {n: torch.add(t, added[n], alpha=weights[self.part_of(n)]) for n, t in model.items()}
        )

    def note(
        self, clients: Clients, weights: Mapping[str, Weights], attention: AttentionShares
    ) -> None:
        """Keeps alpha, beta and the attention between decoders in the history."""
        for name in sorted({p for parts in weights.values() for p in parts}):
            of_part = {c: parts[name] for c, parts in weights.items() if name in parts}
            clients.note("weight_of_others", of_part, part=name)
        for pair, share in attention.means().items():
            clients.note("attention", share, part=pair)

    @on_client(update=TRAVELLING)
    def train(self, client: Client, owed: Payload) -> Payload:
        """Local epochs from the client's own model plus what it is owed; the answer is Δθ."""
        before = self.install(client, owed)
        self.local.run(client)
        return self.answer(client, owed, before)

    def install(self, client: Client, owed: Payload) -> Params:
        """Adds what is owed to the client's own model; returns the part of it that travels."""
        client.recall(MODEL)
        model = travelling(Params.of(client.model))
        if START in owed:
            model |= owed[START]
        elif client.state.get(TAKEN) != owed["round"]:  # else the server missed its last answer
            model = self.add(model, owed["added"], owed["shares"])
        model.load_into(client.model)
        return model

    def answer(self, client: Client, owed: Payload, before: Params) -> Payload:
        """Δθ, the change of what travels; the client remembers the trained model."""
        trained = Params.of(client.model)
        client.state[MODEL], client.state[TAKEN] = trained, owed.get("round", 0)
        return {"update": Params({name: trained[name] for name in before}) - before}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every client's own model on its own data."""
        return clients.ask(self.test, owed=entries_for(server.owed, clients))

    @on_client()
    def test(self, client: Client, owed: Payload) -> Payload:
        """Scores of the client's own model."""
        self.install(client, owed)
        return {"personal": client.score()}
