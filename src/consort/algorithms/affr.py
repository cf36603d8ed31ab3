"""Averaging in which clients count more where the global model is worse than their own.

Yan, Xie, Ren, Cao and Chang: Privacy-Preserving Fingerprint Recognition via Federated Adaptive
Domain Generalization, Computers, Materials & Continua 82, 2025 (AFFR), Algorithm 1. Its weights
are those of FedDG-GA.
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
from consort.core.bounds import NotNegative, Probability
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
    """The global model, and how much every known client counts, in examples."""

    model: Params
    weights: dict[str, float]


@dataclass(frozen=True)
class AFFR(Algorithm[Server]):
    """FedAvg whose weights move towards clients that the global model serves worse."""

    local: LocalTraining = LocalTraining()
    step: Probability = 0.8
    """How far a weight may move in the first round: 0 is FedAvg."""
    gap: Gap = "accuracy"
    """What the own and the global model are compared by, on validation data; a relative loss is
    the difference of two losses divided by their sum."""
    rule: Rule = "settled"
    """How gaps move weights: as they must be meant, as printed, as in FedDG-GA, or by factors."""
    denominator: Denominator = "absolute"
    """What gaps are divided by: the largest size, or the largest gap."""
    per_client: bool = True
    """Whether the step is divided by the number of clients, as in FedDG-GA's code."""
    dead_zone: NotNegative = 1.0
    """A gap smaller than so many validation examples counts as none."""
    memory: Probability = 0.0
    """The share of a client's earlier gaps in the one that counts."""
    equal_start: bool = False
    """Whether all clients count the same at first, whatever their number of examples."""

    def start(self, roster: Roster) -> Server:
        """The common initial model; nobody's weight is known yet."""
        return Server(roster.shared(), {})

    def round(self, server: Server, clients: Clients) -> Server:
        """Everybody trains; gaps move the weights of the mean."""
        replies = clients.ask(self.train, model=server.model)
        weights = self.adjusted(server.weights, replies, clients)
        clients.note("client_weight", {client: weights[client] for client in replies})
        return Server(replies.mean("model", weight=weights), weights)

    def adjusted(
        self, weights: dict[str, float], replies: Replies, clients: Clients
    ) -> dict[str, float]:
        """New weights of those with a gap; newcomers get their first one, others keep theirs."""
        first = {c: 1.0 if self.equal_start else float(r["examples"]) for c, r in replies.items()}
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

    def moved(self, shares: list[float], gaps: list[float], clients: Clients) -> list[float] | None:
        """The shares after a step of this round's length; nothing, if they stay as they are."""
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

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs; how far the received model is behind the one sent last time goes along."""
        model.load_into(client.model)
        gap = self.gap_to(client, client.state.get("validated"))
        self.local.run(client)
        client.state["validated"] = self.validated(client)
        return {"model": Params.of(client.model), "examples": client.examples, "gap": gap}

    def gap_to(self, client: Client, last: float | None) -> float | None:
        """By how much the model is worse than it was last; nothing at first."""
        now = None if last is None else self.validated(client)
        if last is None or now is None:
            return None
        both = abs(last + now) if self.gap == "relative_loss" else 1.0
        return self.counted(client, (last - now) / both if both else 0.0)

    def counted(self, client: Client, gap: float) -> float:
        """The gap, smoothed over rounds, or 0 in the dead zone."""
        if self.memory and math.isfinite(gap):
            before = client.state.get("gap", gap)
            gap = client.state["gap"] = self.memory * before + (1 - self.memory) * gap
        examples = abs(gap) * len(client.data.validation)
        return gap if examples >= self.dead_zone * (1 - ROUNDING) else 0.0

    def validated(self, client: Client) -> float | None:
        """How good the model is on the validation data, the larger the better."""
        if not len(client.data.validation):
            return None
        with torch.random.fork_rng(devices=[]):  # training goes on as if nobody had looked
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

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global model on every client's data."""
        return clients.ask(self.test, model=server.model)

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the model as received."""
        model.load_into(client.model)
        return {"global": client.score()}


def _is_number(gap: float | None) -> bool:
    """Unknown gaps, and those of models that have broken down, are left out."""
    return gap is not None and math.isfinite(gap)
