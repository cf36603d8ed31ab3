"""Averaging with control variates that correct client drift (SCAFFOLD).

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh: SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning, ICML 2020. `round` is one round of Algorithm 1 with option II and a global step
size of 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.contract import Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.roster import Roster
from consort.errors import UsageError
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import shift_by


@dataclass(frozen=True)
class Server:
    """The global model x and the server's control variate c, the mean of the clients' c_i."""

    model: Params
    control: Params


@dataclass(frozen=True)
class Scaffold(Algorithm[Server]):
    """Corrects every local step by the difference of the global and the client's own drift."""

    averages: ClassVar = {"update": None, "change": None}
    trains_only_by_steps: ClassVar[bool] = True

    local: LocalTraining = LocalTraining()

    def __post_init__(self) -> None:
        local = self.local
        if local.optimizer != "sgd" or local.momentum or local.weight_decay or local.clip:
            raise UsageError(
                "scaffold derives its control variates from plain SGD steps: set "
                "local.optimizer = 'sgd' and leave out momentum, weight_decay and clip"
            )
        if local.lr == 0:
            raise UsageError("scaffold divides by the learning rate: set local.lr above 0")

    def start(self, roster: Roster) -> Server:
        """The common initial model; all control variates are zero."""
        model = roster.shared()
        return Server(model, model.without("buffers").zeros())

    def round(self, server: Server, clients: Clients) -> Server:
        """x += mean of Δy_i and c += |S| / N times the mean of Δc_i, over the answers S."""
        replies = clients.ask(self.train, model=server.model, control=server.control)
        share = len(replies) / clients.population
        return Server(
            server.model + replies.mean("update"),
            server.control + replies.mean("change") * share,
        )

    @on_client(update=Model(), change=Model(without=("buffers",)))
    def train(self, client: Client, model: Params, control: Params) -> Payload:
        """Local steps y_i -= lr (g_i(y_i) - c_i + c); then c_i+ = c_i - c + (x - y_i) / (K lr)."""
        own = client.state.get("control", control.zeros())
        model.load_into(client.model)
        trained = self.local.run(client, adjust=shift_by(control - own))
        update = Params.of(client.model) - model
        path = trained.steps * self.local.rate(client.round, client.rounds)
        change = -control - update.without("buffers") / path
        client.state["control"] = own + change
        return {"update": update, "change": change}
