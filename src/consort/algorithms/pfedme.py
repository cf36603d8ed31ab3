"""Personal models as the proximal points of a global one (pFedMe).

T. Dinh, Tran and Nguyen: Personalized Federated Learning with Moreau Envelopes, NeurIPS 2020,
Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from consort.algorithms.fedavg import FedAvg, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import PositiveFloat, PositiveInt
from consort.core.contract import Model
from consort.core.messages import Payload
from consort.core.params import BUFFERS, Params
from consort.training.client import Client
from consort.training.descent import Descent

PERSONAL = "personal"


@dataclass(frozen=True)
class PFedMe(FedAvg):
    """Moves the global model by the Moreau envelopes of the clients' losses."""

    reports: ClassVar[str] = "personal"
    averages: ClassVar = {"model": None}

    strength: PositiveFloat = 15.0
    """The paper's lambda: the larger, the closer is a personal model to the global one."""
    inner_steps: PositiveInt = 5
    """The paper's K: steps of the personal model on every batch."""
    personal_lr: PositiveFloat = 0.09
    """Learning rate of the personal model; `local.lr` is that of the global one."""
    beta: PositiveFloat = 1.0
    """The server's step from the old model to the mean of the clients'."""

    def round(self, server: Server, clients: Clients) -> Server:
        """w = (1 - beta) w + beta times the mean of the clients' w_i."""
        mean = clients.ask(self.train, model=server.model).mean("model")
        w, w_i = server.model.without(BUFFERS), mean.without(BUFFERS)
        return Server(mean | (w * (1 - self.beta) + w_i * self.beta))

    @on_client(model=Model())
    def train(self, client: Client, model: Params) -> Payload:
        """Local rounds r = 0, …, R - 1, one on every batch."""
        model.load_into(client.model)
        theta = list[Params]()
        self.local.run(client, loop=lambda descent: theta.append(self.envelope(descent)))
        answer = {"model": Params.of(client.model)}
        theta[0].load_into(client.model)
        client.keep(PERSONAL)
        return answer

    def envelope(self, descent: Descent) -> Params:
        """theta ≈ argmin f(theta; D) + lambda/2 ||theta - w||²; then w -= eta lambda (w - theta).

        Leaves the parameters at w and returns theta, the personal model.
        """
        w = theta = descent.point
        for D in descent.batches:
            for _ in range(self.inner_steps):
                g = descent.gradient(D, at=theta)
                theta = theta - self.personal_lr * (g + self.strength * (theta - w))
            w = w - descent.rate * self.strength * (w - theta)
        descent.move_to(w)
        return theta

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the global model and of the client's personal one."""
        model.load_into(client.model)
        received = client.score()
        client.recall(PERSONAL)
        return {"global": received, "personal": client.score()}
