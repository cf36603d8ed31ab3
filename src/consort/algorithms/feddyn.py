"""Averaging with a regulariser that clients adapt to their own optimum (FedDyn).

Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama: Federated Learning Based on Dynamic
Regularization, ICLR 2021. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import PositiveFloat
from consort.core.contract import Model
from consort.core.messages import Payload
from consort.core.params import BUFFERS, Params
from consort.core.roster import Roster
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import Adjust, pull_towards, shift_by

GRADIENT = "gradient"
"""The entry of a client's state with its gradient at its last local optimum."""


@dataclass(frozen=True)
class Server:
    """The global model theta, and h, which sums up how far clients moved."""

    model: Params
    h: Params


@dataclass(frozen=True)
class FedDyn(Algorithm[Server]):
    """Regularises local losses so that their optima agree with that of all clients."""

    averages: ClassVar = {"model": None}
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()
    alpha: PositiveFloat = 0.01
    """Weight of the regulariser."""

    def start(self, roster: Roster) -> Server:
        """The common initial model; h is zero."""
        model = roster.shared()
        return Server(model, model.without(BUFFERS).zeros())

    def round(self, server: Server, clients: Clients) -> Server:
        """h -= alpha |P| / m (mean of theta_k - theta); theta = mean of theta_k - h / alpha."""
        replies = clients.ask(self.train, model=server.model)
        mean = replies.mean("model")
        theta, moved = server.model.without(BUFFERS), mean.without(BUFFERS)
        h = server.h - self.alpha * (len(replies) / clients.population) * (moved - theta)
        return Server(mean | (moved - h / self.alpha), h)

    @on_client(model=Model())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs on L_k(theta_k) - <g_k, theta_k> + alpha/2 ||theta_k - theta||².

        Then the gradient at the client's optimum is known: g_k -= alpha (theta_k - theta).
        """
        theta = model.without(BUFFERS)
        g = client.state.get(GRADIENT, theta.zeros())
        model.load_into(client.model)
        self.local.run(client, adjust=both(shift_by(-g), pull_towards(theta, self.alpha)))
        trained = Params.of(client.model)
        client.state[GRADIENT] = g - self.alpha * (trained.without(BUFFERS) - theta)
        return {"model": trained}


def both(first: Adjust, second: Adjust) -> Adjust:
    """One change of gradients after the other."""

    def adjust(
        names: Sequence[str], values: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        return second(names, values, first(names, values, grads))

    return adjust
