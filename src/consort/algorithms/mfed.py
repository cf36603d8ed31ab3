"""One model per task, with encoders regularised towards their mean over tasks (M-Fed).

Zhou, Bao, Wang, Zhang, Zhang and Zhang: Multi-task Federated Learning with Encoder-Decoder
Structure: Enabling Collaborative Learning Across Different Tasks. `round` is one round of
Algorithm 1, with w_k the model of task k, w_k* its encoder and g the global encoder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from consort.algorithms._per_task import group_means, models_for
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, PositiveInt
from consort.core.contract import Count, Model
from consort.core.messages import Payload, Replies
from consort.core.params import BUFFERS, Params, mean
from consort.core.roster import Roster
from consort.errors import UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Adjust, pull_towards

ENCODER = "encoder"


@dataclass(frozen=True)
class Server:
    """The model w_k of every task, the task of every client, and the global encoder g."""

    models: dict[str, Params]
    alike: dict[str, str]
    encoder: Params


@dataclass(frozen=True)
class MFed(Algorithm[Server]):
    """FedAvg within every task, with encoders pulled towards their mean over tasks."""

    local: LocalTraining = LocalTraining()
    pull: Literal["norm", "squared"] = "norm"
    """The penalty R: the distance to the global encoder as in Equation 6, or half its square, which
    is what the paper's proof differentiates."""
    first_strength: NonNegativeFloat = 0.0001
    """The strength lambda in the first round."""
    last_strength: NonNegativeFloat = 0.01
    """The strength at the end: in between it grows by the same factor in every round."""
    growing_rounds: PositiveInt = 20
    """The rounds from the first strength to the last, which then stays."""

    def __post_init__(self) -> None:
        if (self.first_strength == 0) != (self.last_strength == 0):
            raise UsageError("first_strength and last_strength are both positive or both 0")

    def start(self, roster: Roster) -> Server:
        """The initial models of all tasks, with the same encoder."""
        encoder, alike = roster.shared(ENCODER).without(BUFFERS), roster.alike()
        return Server({first: roster.model(first) for first in alike.values()}, alike, encoder)

    def round(self, server: Server, clients: Clients) -> Server:
        """FedAvg among the clients of a task (Equation 3), and g = mean of w_k* (Equation 4)."""
        own = models_for(server.models, server.alike, clients)
        replies = clients.ask(self.train, model=own, encoder=server.encoder)
        w = server.models | group_means(replies, server.alike)
        encoders = [w_k.only(ENCODER).without(BUFFERS) for w_k in w.values()]
        g = mean(encoders)
        spread = sum((encoder - g).norm() for encoder in encoders) / len(encoders)
        clients.note("distance_to_encoder", spread)
        return Server(w, server.alike, g)

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params, encoder: Params) -> Payload:
        """Local epochs from the model of the task on L_i(w) + lambda R(w*, g) (Equation 6)."""
        model.load_into(client.model)
        self.local.run(client, adjust=self.penalty(client, encoder))
        return {"model": Params.of(client.model), "examples": client.examples}

    def penalty(self, client: Client, encoder: Params) -> Adjust:
        """Adds the gradient of lambda R to that of the loss."""
        strength = self.strength(client.round)
        if self.pull == "norm":
            return unit_pull_towards(encoder, strength)
        rate = self.local.rate(client.round, client.rounds)
        if self.local.optimizer == "sgd" and rate * strength > 0.5:
            strength = 0.5 / rate  # beyond that, steps go past the global encoder
        return pull_towards(encoder, strength)

    def strength(self, round_: int) -> float:
        """The paper's lambda in a round; rounds are counted from 1."""
        if self.first_strength == 0 or self.growing_rounds == 1:
            return self.first_strength
        passed = min((round_ - 1) / (self.growing_rounds - 1), 1.0)
        return float(self.first_strength ** (1 - passed) * self.last_strength**passed)

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The model of its task on every client's data."""
        return clients.ask(self.test, model=models_for(server.models, server.alike, clients))


def unit_pull_towards(anchor: Params, strength: float) -> Adjust:
    """Adds the gradient of `strength * ||w - anchor||`, which is zero where they are equal."""

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
