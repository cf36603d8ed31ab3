"""A common direction that decreases every client's loss (FedMGDA+).

Hu, Shaloudegi, Zhang and Yu: Federated Learning Meets Multi-objective Optimization, IEEE
Transactions on Network Science and Engineering 2022. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from consort.aggregation.min_norm import gram, min_norm_weights
from consort.algorithms.fedavg import FedAvg, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import PositiveFloat, Probability
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import BUFFERS, Params, mean
from consort.training.client import Client


@dataclass(frozen=True)
class FedMGDA(FedAvg):
    """Moves along the shortest convex combination of the clients' normalised updates."""

    trains_only_by_steps: ClassVar[bool] = True

    epsilon: Probability = 0.1
    """How far a client's weight may be from its share of the examples: with 0 weights are those of
    FedAvg, with 1 every convex combination is allowed."""
    server_lr: PositiveFloat = 1.0
    """The length of the step where all clients have the same direction, the paper's eta."""

    def round(self, server: Server, clients: Clients) -> Server:
        """Moves by eta times the shortest sum of lambda_i g_i / ||g_i||, near FedAvg's weights."""
        replies = clients.ask(self.train, model=server.model)
        taught = [reply for reply in replies.values() if reply["examples"]]
        updates = [reply["update"].without(BUFFERS) for reply in taught]
        products = gram(updates)
        lengths = products.diagonal().sqrt()
        lengths = torch.where(lengths > 0, lengths, 1.0)
        shares = torch.tensor([float(reply["examples"]) for reply in taught])
        weights = min_norm_weights(products / lengths.outer(lengths), shares, self.epsilon)
        factors = (weights / lengths).tolist()
        step = mean(updates, factors) * (self.server_lr * sum(factors))
        drift = mean([reply["update"].only(BUFFERS) for reply in taught], weights.tolist())
        return Server(server.model + (step | drift))

    @on_client(update=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs from the global model; the answer is the pseudo-gradient g_i, with its sign
        reversed."""
        model.load_into(client.model)
        self.local.run(client)
        return {"update": Params.of(client.model) - model, "examples": client.examples}
