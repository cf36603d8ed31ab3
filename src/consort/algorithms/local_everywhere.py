"""No federation: every client trains alone, and all models are tested on the data of all clients.

The result is a matrix; off its diagonal are the scores of models on data of other clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.contract import Model
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining

PERSONAL, MODEL_OF = "personal", "model of"
MAPPED = ("accuracy", "eer")
"""Metrics that the report draws as such a matrix, where tasks have them."""


@dataclass(frozen=True)
class Server:
    """The last model of every client that has trained."""

    models: dict[str, Params]


@dataclass(frozen=True)
class LocalEverywhere(Algorithm[Server]):
    """local_only whose models are sent, so that every client can test all of them."""

    reports: ClassVar[str] = PERSONAL

    local: LocalTraining = LocalTraining()

    def start(self, roster: Roster) -> Server:
        """All clients must have one architecture, to be able to run each other's models."""
        roster.shared()
        return Server({})

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients go on training; the server keeps their models and aggregates nothing."""
        replies = clients.ask(self.train)
        return Server(server.models | replies.each("model"))

    @on_client(model=Model())
    def train(self, client: Client) -> Payload:
        """Local epochs from where this client stopped last time."""
        client.recall("model")
        self.local.run(client)
        client.state["model"] = Params.of(client.model)
        return {"model": client.state["model"]}

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """Every client's model on the data of every client."""
        replies = clients.ask(self.test, models=server.models)
        for metric in MAPPED:
            for owner in server.models:
                found = {c: _tested(scores, c, owner, metric) for c, scores in replies.items()}
                known = {client: value for client, value in found.items() if value is not None}
                clients.note(f"{metric}_elsewhere", known, part=f"{MODEL_OF} {owner}")
        return replies

    @on_client()
    def test(self, client: Client, models: dict[str, Params]) -> Payload:
        """Scores of all models, the client's own one last."""
        client.recall("model")
        own = Params.of(client.model)
        scores = {}
        for owner, model in models.items():
            if owner != client.id:
                model.load_into(client.model)
                scores[f"{MODEL_OF} {owner}"] = client.score()
        own.load_into(client.model)
        return scores | {PERSONAL: client.score()}


def _tested(scores: Payload, client: str, owner: str, metric: str) -> float | None:
    """A metric of the owner's model on a client's test data: the mean over tasks that have it."""
    found = scores.get(PERSONAL if owner == client else f"{MODEL_OF} {owner}")
    if not isinstance(found, Mapping) or "test" not in found:
        return None
    values = [metrics.get(metric) for metrics in found["test"]["tasks"].values()]
    numbers = [value for value in values if isinstance(value, int | float)]
    if not all(map(math.isfinite, numbers)):
        return sum(numbers) / len(numbers)
    return fmean(numbers) if numbers else None
