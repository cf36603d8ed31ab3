"""A few server models for many clients, at about the cost of one.

Our variation of Guo et al.: FedFew (see `fedfew`). It differs in these ways, each of which an
option switches off, as the recipe fedfew/ablation does:

- `share_encoder`: the models have one encoder and differ in their heads only.
- `full_step`: every model takes a full step.
- `sample`: a client trains one model per round, drawn by its weights w_ik.
- `prior`: a client's label frequencies are removed from what it sends.
- `own_head`: every client also has a head of its own, which it is tested with.
- `regret`: the loss that counts is the one that the own head would save.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from consort.aggregation.stch_set import set_weights, smooth_objective
from consort.algorithms._model_sets import check_count, note_weights
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Fraction, PositiveFloat, PositiveInt
from consort.core.contract import Count, Entry, Model, Number, Same, Whole
from consort.core.contract_groups import Several
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies, UsageError
from consort.tasks.classification import Classification
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Objective, features_of, losses_of_features, task_losses

OWN = "own head"
AFTER_ENCODER = ("heads", "decoders")
_SMOOTHING = 0.5  # of an example of every class, so that no frequency is zero


@dataclass(frozen=True)
class Server:
    """The part that all models share, and the parts in which they differ."""

    common: Params
    variants: list[Params]


@dataclass(frozen=True)
class FedFewPlus(Algorithm[Server]):
    """One encoder and K heads; a client trains the encoder with one head, drawn by its fit."""

    reports: ClassVar[str] = "personal"

    local: LocalTraining = LocalTraining()
    models: PositiveInt = 3
    """How many heads, the paper's K."""
    mu: PositiveFloat = 0.2
    """Smoothness in the first round."""
    anneal: Fraction = 1.0
    """Smoothness in the last round as a share of that in the first; it falls geometrically."""
    share_encoder: bool = True
    """Whether the models differ in their heads only."""
    full_step: bool = True
    """Whether every model takes a full step, or all models share one."""
    sample: bool = True
    """Whether a client trains one model, drawn by its weights, or all of them."""
    prior: bool = True
    """Whether a client's label frequencies are removed from the model that it sends."""
    own_head: bool = True
    """Whether every client also trains a head of its own, whose loss is added to that of the other
    one for the encoder, and which it is tested with."""
    regret: bool = True
    """Whether the loss of the client's own head is subtracted from the loss that counts."""
    weights: Literal["need", "examples"] = "need"
    """Whether clients are weighted by their losses, as in FedFew, or by their examples."""

    @property
    def shared_part(self) -> Entry:
        """What all models have in common."""
        return Model("encoder") if self.share_encoder else Same(Params({}))

    @property
    def own_part(self) -> Model:
        """That in which the models differ."""
        return Model(without=("encoder",)) if self.share_encoder else Model()

    @property
    def trained(self) -> int:
        """How many models a client trains in a round."""
        return 1 if self.sample else self.models

    def start(self, roster: Roster) -> Server:
        """The common initial encoder under independently drawn heads."""
        check_count(self.models, roster)
        if self.own_head and not self.share_encoder:
            raise UsageError("fedfew_plus: an own head needs a shared encoder: own_head = false")
        if self.regret and not self.own_head:
            raise UsageError("fedfew_plus: regret needs an own head to compare: regret = false")
        starts = roster.starts(self.models)
        if not self.share_encoder:
            return Server(Params({}), starts)
        return Server(starts[0].only("encoder"), [start.without("encoder") for start in starts])

    def round(self, server: Server, clients: Clients) -> Server:
        """Encoder and heads move by the weighted updates of the clients that trained them."""
        mu = self.mu * self.anneal ** ((clients.round - 1) / max(clients.rounds - 1, 1))
        replies = clients.ask(self.train, common=server.common, variants=server.variants, mu=mu)
        if not replies:
            raise NoReplies("no client trained the models")
        losses = torch.tensor(list(replies.each("losses").values()), dtype=torch.float64)
        weights = set_weights(losses, mu)
        note_weights(clients, list(replies), weights)
        clients.note("objective", smooth_objective(losses, mu))
        counts = dict(zip(replies, weights.clients.tolist(), strict=True))
        if self.weights == "examples":
            total = sum(replies.each("examples").values())
            counts = {client: reply["examples"] / total for client, reply in replies.items()}
        common = server.common
        for client, reply in replies.items():
            common = common + reply["common"] * counts[client]
        variants = [
            self.moved(k, variant, replies, counts) for k, variant in enumerate(server.variants)
        ]
        return Server(common, variants)

    def moved(
        self, number: int, variant: Params, replies: Replies, counts: Mapping[str, float]
    ) -> Params:
        """One head after its step; a head that nobody trained stays."""
        changes = [
            (counts[client] * share, change)
            for client, reply in replies.items()
            for k, share, change in zip(
                reply["numbers"], reply["shares"], reply["variants"], strict=True
            )
            if k == number
        ]
        total = sum(weight for weight, _ in changes) if self.full_step else 1.0
        for weight, change in changes:
            variant = variant + change * (weight / total if total else 0.0)
        return variant

    @on_client(
        common=lambda self, _: self.shared_part,
        variants=lambda self, _: Several(self.own_part, self.trained),
        numbers=lambda self, _: Several(Whole(0, self.models - 1), self.trained),
        shares=lambda self, _: Several(Number(0, 1), self.trained),
        losses=lambda self, _: Several(Number(), self.models),
        examples=Count(),
    )
    def train(self, client: Client, common: Params, variants: list[Params], mu: float) -> Payload:
        """Evaluates all models on the training data and trains the one that is drawn by its fit."""
        common.load_into(client.model)
        seen = features_of(client)
        losses = [self.loss(client, variant, seen) for variant in variants]
        fit = (-torch.tensor(losses, dtype=torch.float64) / mu).softmax(0)
        objective: Objective = task_losses
        if self.own_head:
            client.state[OWN] = self.fit_own_head(client, variants[int(fit.argmax())], seen)
            spared = self.local.loss(client, seen, losses_of_features) if self.regret else 0.0
            losses = [loss - spared for loss in losses]
            objective = beside(client.model.frozen_outputs())
        numbers, shares = list(range(len(variants))), fit.tolist()
        if self.sample:  # drawn with probability w, so counted with w / w
            numbers, shares = torch.multinomial(fit, 1, generator=client.generator).tolist(), [1.0]
        changes = [self.improve(client, common | variants[k], objective) for k in numbers]
        shared = [
            Params({name: change[name] * share for name in common})
            for change, share in zip(changes, shares, strict=True)
        ]
        return {
            "common": sum(shared[1:], start=shared[0]),
            "variants": [Params({name: c[name] for name in variants[0]}) for c in changes],
            "numbers": numbers,
            "shares": shares,
            "losses": losses,
            "examples": client.examples,
        }

    def fit_own_head(self, client: Client, best: Params, seen: Examples) -> Params:
        """The client's own head, at first the best received one, after training on the features."""
        client.state.get(OWN, self.adapted(client, best)).load_into(client.model)
        self.local.run(client, objective=losses_of_features, only=AFTER_ENCODER, examples=seen)
        return Params.of(client.model).without("encoder")

    def loss(self, client: Client, variant: Params, seen: Examples) -> float:
        """The loss of a model on the training data."""
        self.adapted(client, variant).load_into(client.model)
        if self.share_encoder:
            return self.local.loss(client, seen, losses_of_features)
        return self.local.loss(client, client.data.train)

    def improve(self, client: Client, model: Params, objective: Objective) -> Params:
        """The change of a model by local training; the shift by label frequencies cancels out."""
        start = self.adapted(client, model)
        start.load_into(client.model)
        self.local.run(client, objective=objective)
        return Params.of(client.model) - start

    def adapted(self, client: Client, model: Params) -> Params:
        """A model as this client uses it: with the logarithm of its label frequencies added."""
        if not self.prior:
            return model
        return model | {name: model[name] + shift for name, shift in label_shifts(client).items()}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model that each client chooses, as received."""
        return clients.ask(self.test, common=server.common, variants=server.variants)

    @on_client(chosen_model=lambda self, _: Whole(0, self.models - 1))
    def test(self, client: Client, common: Params, variants: list[Params]) -> Payload:
        """Scores of the best model as received, and with the client's own head."""
        common.load_into(client.model)
        candidates = [self.adapted(client, variant) for variant in variants]
        examples = client.data.validation or client.data.train
        chosen = self.local.choose(client, candidates, examples)
        scores = {"chosen_model": chosen, "global": client.score()}
        if self.own_head:
            self.fit_own_head(client, variants[chosen], features_of(client))
        return scores | {"personal": client.score()}


def beside(own: Mapping[str, nn.Module]) -> Objective:
    """The losses of the model plus those of the client's own head, for the encoder."""

    def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
        features = Examples(client.model.encoder(batch.inputs), batch.targets)
        losses = losses_of_features(client, features)
        for name, task in client.tasks.items():
            own_loss = task.loss(own[name](features.inputs), batch.targets[name])
            losses[name] = losses[name] + own_loss
        return losses

    return objective


def label_shifts(client: Client) -> dict[str, Tensor]:
    """By the name of a head's bias: the logarithm of how often the client has each class."""
    shifts = {}
    for name, task in client.tasks.items():
        if isinstance(task, Classification):
            counts = torch.bincount(client.data.train.targets[name], minlength=task.classes)
            smooth = counts + _SMOOTHING
            shifts[f"heads.{name}.bias"] = (smooth / smooth.sum()).log()
    return shifts
