"""Averaging with larger weights for clients that the global model serves worse (AFFR).

Yan, Xie, Ren, Cao and Chang: Privacy-Preserving Fingerprint Recognition via Federated Adaptive
Domain Generalization, Computers, Materials & Continua 82, 2025. `round` is one round of
Algorithm 1, with alpha_i the weight of client i (Equation 7), G_i its generalisation gap
(Equation 5) and d the step. The weights are those of FedDG-GA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import torch

from consort.aggregation.gap_weights import (
    Denominator,
    decayed,
    exponential_gap_weights,
    gap_weights,
    printed_gap_weights,
    uncentred_gap_weights,
)
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, Probability
from consort.core.contract import Count, Model, Number
from consort.core.contract_groups import Maybe
from consort.core.limits import LARGEST
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.errors import Failure
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.scoring import measure, recompute_statistics

Rule = Literal["settled", "printed", "feddg_ga", "exponential"]
Gap = Literal["accuracy", "loss", "relative_loss"]
ROUNDING = 1e-9


@dataclass(frozen=True)
class Server:
    """The global model, and the weight alpha of every known client, in examples."""

    model: Params
    weights: dict[str, float]


@dataclass(frozen=True)
class AFFR(Algorithm[Server]):
    """FedAvg whose weights grow for clients that the global model serves worse."""

    local: LocalTraining = LocalTraining()
    step: Probability = 0.8
    """How far a weight may move in the first round, the paper's d: 0 is FedAvg."""
    gap: Gap = "accuracy"
    """The metric that is compared on validation data; a relative loss is the difference of the two
    losses divided by their sum."""
    rule: Rule = "settled"
    """How gaps move weights: by Equation 7 as it must be meant (`settled`), as printed, as in
    FedDG-GA, or by factors."""
    denominator: Denominator = "absolute"
    """What the deviations of gaps from their mean are divided by: the largest absolute value, or
    the largest value."""
    per_client: bool = True
    """Whether the step is divided by the number of clients, as in FedDG-GA's code."""
    dead_zone: NonNegativeFloat = 1.0
    """A gap of fewer than so many validation examples counts as 0."""

    @property
    def gaps(self) -> Number:
        """The range of gaps; those of models that have diverged are no numbers."""
        widest = LARGEST if self.gap == "loss" else 1.0
        return Number(-widest, widest, finite=False)

    def start(self, roster: Roster) -> Server:
        """The common initial model; no weights are known yet."""
        return Server(roster.shared(), {})

    def round(self, server: Server, clients: Clients) -> Server:
        """theta_g = sum of alpha_i theta_i, after the gaps G_i have moved alpha."""
        replies = clients.ask(self.train, model=server.model)
        alpha = self.adjusted(server.weights, replies, clients)
        clients.note("client_weight", {client: alpha[client] for client in replies})
        return Server(replies.mean("model", weight=alpha), alpha)

    def adjusted(
        self, weights: dict[str, float], replies: Replies, clients: Clients
    ) -> dict[str, float]:
        """The new alpha of clients with a gap; new clients get a first one, others keep theirs."""
        first = self.first_weights(replies)
        weights = first | weights
        gaps = {c: r["gap"] for c, r in replies.items() if _is_number(r["gap"])}
        total = sum(weights.values())
        if gaps and total:
            clients.note("generalisation_gap", gaps)
            moved = self.moved([weights[c] / total for c in gaps], list(gaps.values()), clients)
            if moved is not None:
                weights |= {c: share * total for c, share in zip(gaps, moved, strict=True)}
        if not any(weights[client] for client in replies):
            weights |= first
        return weights

    def first_weights(self, replies: Replies) -> dict[str, float]:
        """Weights as in FedAvg (Equation 3)."""
        return {client: float(reply["examples"]) for client, reply in replies.items()}

    def moved(self, shares: list[float], gaps: list[float], clients: Clients) -> list[float] | None:
        """The shares after a step of this round's length; None if they stay as they are."""
        step = decayed(self.step, clients.round - 1, clients.rounds)
        step /= clients.population if self.per_client else 1
        if self.rule == "printed":
            moved = printed_gap_weights(shares, gaps, step)
        elif self.rule == "feddg_ga":
            moved = uncentred_gap_weights(shares, gaps, step)
        elif self.rule == "exponential":
            moved = exponential_gap_weights(shares, gaps, step)
        else:
            moved = gap_weights(shares, gaps, step, self.denominator)
        return None if moved == shares else moved

    @on_client(model=Model(), examples=Count(), gap=lambda self, _: Maybe(self.gaps))
    def train(self, client: Client, model: Params) -> Payload:
        """The gap of the received model to the one that the client sent last, then local epochs."""
        model.load_into(client.model)
        gap = self.gap_to(client, client.state.get("validated"))
        self.local.run(client)
        client.state["validated"] = self.validated(client)
        return {"model": Params.of(client.model), "examples": client.examples, "gap": gap}

    def gap_to(self, client: Client, last: float | None) -> float | None:
        """By how much the model is worse than the client's last one; None in its first round."""
        now = None if last is None else self.validated(client)
        if last is None or now is None:
            return None
        both = abs(last + now) if self.gap == "relative_loss" else 1.0
        return self.counted(client, (last - now) / both if both else 0.0)

    def counted(self, client: Client, gap: float) -> float:
        """The gap, or 0 if it lies in the dead zone."""
        examples = abs(gap) * len(client.data.validation)
        return gap if examples >= self.dead_zone * (1 - ROUNDING) else 0.0

    def validated(self, client: Client) -> float | None:
        """The accuracy or the negative loss on the validation data; None without any."""
        if not len(client.data.validation):
            return None
        with torch.random.fork_rng(devices=[]):  # so that validation does not change training
            if client.model.batchnorm == "recompute":
                recompute_statistics(client.model, client.data.train)
            client.model.eval()
            found = measure(client.model, client.tasks, client.data.validation)
        metric = "accuracy" if self.gap == "accuracy" else "loss"
        for task, metrics in found.items():
            if metric not in metrics:
                raise Failure(f'task {task!r} has no {metric}: set another "gap"')
        mean = fmean(metrics[metric] for metrics in found.values())
        return mean if metric == "accuracy" else -mean


def _is_number(gap: float | None) -> bool:
    """Whether a gap is known and finite; models that have diverged are left out."""
    return gap is not None and math.isfinite(gap)
