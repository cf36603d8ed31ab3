"""One model per task, whose encoders are drawn to what the encoders of all tasks have in common.

Zhou, Bao, Wang, Zhang, Zhang and Zhang: Multi-task Federated Learning with Encoder-Decoder
Structure: Enabling Collaborative Learning Across Different Tasks (M-Fed), Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from consort.algorithms.fedavg_per_task import means, models_for
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Count, NotNegative, Positive
from consort.core.messages import Payload, Replies
from consort.core.params import BUFFERS, Params, mean
from consort.core.roster import Roster
from consort.errors import UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Adjust, pull_towards

ENCODER, MOVED = "encoder", "moved"


@dataclass(frozen=True)
class Server:
    """The model of every task, for every client whose that is, and the global encoder."""

    models: dict[str, Params]
    alike: dict[str, str]
    encoder: Params


@dataclass(frozen=True)
class MFed(Algorithm[Server]):
    """FedAvg within every task, with encoders pulled towards their mean over tasks."""

    local: LocalTraining = LocalTraining()
    pull: Literal["norm", "squared"] = "norm"
    """The penalty: the distance to the global encoder, or half its square."""
    schedule: Literal["geometric", "adaptive"] = "geometric"
    """The strength grows from round to round, or is less for a client that moved more last time."""
    first_strength: NotNegative = 0.0001
    last_strength: NotNegative = 0.01
    """The strength at the end; with `adaptive`, of a client that did not move."""
    growing_rounds: Count = 20
    """The rounds from the first strength to the last, which then stays."""
    scale: Positive = 1.0
    """With `adaptive`: the move that lowers the strength to 1/e."""

    def __post_init__(self) -> None:
        if (self.first_strength == 0) != (self.last_strength == 0):
            raise UsageError("first_strength and last_strength are both positive or both 0")

    def start(self, roster: Roster) -> Server:
        """The initial models of all tasks, which have one encoder."""
        encoder, alike = roster.shared(ENCODER).without(BUFFERS), roster.alike()
        return Server({first: roster.model(first) for first in alike.values()}, alike, encoder)

    def round(self, server: Server, clients: Clients) -> Server:
        """FedAvg in every task; the mean encoder over tasks, each counted once, is global."""
        own = models_for(server.models, server.alike, clients)
        replies = clients.ask(self.train, model=own, encoder=server.encoder)
        models = server.models | means(replies, server.alike)
        encoders = [model.only(ENCODER).without(BUFFERS) for model in models.values()]
        self.note(clients, encoders, encoder := mean(encoders))
        return Server(models, server.alike, encoder)

    def note(self, clients: Clients, encoders: Sequence[Params], encoder: Params) -> None:
        """Keeps how far the tasks are apart."""
        spread = sum((own - encoder).norm() for own in encoders) / len(encoders)
        clients.note("distance_to_encoder", spread)

    @on_client
    def train(self, client: Client, model: Params, encoder: Params) -> Payload:
        """Local epochs from the model of the task, under the pull of the global encoder."""
        model.load_into(client.model)
        self.local.run(client, adjust=self.pulled(client, encoder))
        trained = Params.of(client.model)
        if self.schedule == "adaptive":
            start = model.only(ENCODER).without(BUFFERS)
            client.state[MOVED] = (trained.only(ENCODER).without(BUFFERS) - start).norm()
        return {"model": trained, "examples": client.examples}

    def pulled(self, client: Client, encoder: Params) -> Adjust:
        """The gradient of the penalty, added to that of the loss."""
        strength = self.strength(client.round, client.state.get(MOVED, 0.0))
        if self.pull == "norm":
            return unit_pull_towards(encoder, strength)
        rate = self.local.rate(client.round, client.rounds)
        if self.local.optimizer == "sgd" and rate * strength > 0.5:
            strength = 0.5 / rate  # beyond that, steps go past the global encoder
        return pull_towards(encoder, strength)

    def strength(self, round_: int, moved: float = 0.0) -> float:
        """The paper's lambda in a round (rounds count from 1)."""
        if self.schedule == "adaptive":
            return self.last_strength * math.exp(-moved / self.scale)
        if self.first_strength == 0 or self.growing_rounds == 1:
            return self.first_strength
        passed = min((round_ - 1) / (self.growing_rounds - 1), 1.0)
        return float(self.first_strength ** (1 - passed) * self.last_strength**passed)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model of its task on every client's data."""
        return clients.ask(self.test, model=models_for(server.models, server.alike, clients))

    @on_client
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the model as received."""
        model.load_into(client.model)
        return {"global": client.score()}


def unit_pull_towards(anchor: Params, strength: float) -> Adjust:
    """Adds the gradient of `strength * ||w - anchor||`, which is nothing where they are equal."""

    def adjust(
        names: Sequence[str], params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        ways = {n: p - anchor[n] for n, p in zip(names, params, strict=True) if n in anchor}
        distance = math.hypot(*(float(way.norm()) for way in ways.values()))
        if distance == 0:
            return list(grads)
        return [
            grad.add(ways[name], alpha=strength / distance) if name in ways else grad
            for name, grad in zip(names, grads, strict=True)
        ]

    return adjust
