"""A global model from which one step on own data leads far (Per-FedAvg).

Fallah, Mokhtari and Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: A
Model-Agnostic Meta-Learning Approach, NeurIPS 2020, Algorithm 1 with the approximations FO and HF
of Section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from consort.algorithms.fedavg import FedAvg, Server
from consort.core.algorithm import Clients, on_client
from consort.core.bounds import PositiveFloat
from consort.core.contract import Model
from consort.core.messages import Payload
from consort.core.params import Params
from consort.training.client import Client
from consort.training.descent import Descent


@dataclass(frozen=True)
class PerFedAvg(FedAvg):
    """FedAvg on the losses after one step of every client, f_i(w - alpha ∇f_i(w))."""

    reports: ClassVar[str] = "tuned"
    averages: ClassVar = {"model": None}

    alpha: PositiveFloat = 0.01
    """Learning rate of the step that personalises; `local.lr` is the paper's beta."""
    approximation: Literal["first_order", "hessian_free"] = "first_order"
    """What stands for the Hessian: nothing, or a difference of gradients."""
    delta: PositiveFloat = 0.001
    """Half the distance of the gradients of `hessian_free`, in units of the gradient."""

    def round(self, server: Server, clients: Clients) -> Server:
        """w = the mean of the clients' w_i."""
        return Server(clients.ask(self.train, model=server.model).mean("model"))

    @on_client(model=Model())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs of meta-learning from the global model."""
        model.load_into(client.model)
        self.local.run(client, loop=self.meta_steps)
        return {"model": Params.of(client.model)}

    def meta_steps(self, descent: Descent) -> None:
        """w -= beta (I - alpha ∇²f(w; D'')) ∇f(w - alpha ∇f(w; D); D') on every batch D."""
        for D in descent.batches:
            w = descent.point
            g = descent.gradient(descent.draw(), at=w - self.alpha * descent.gradient(D))
            if self.approximation == "hessian_free":
                g = g - self.alpha * self.curvature(descent, w, g)
            descent.move_to(w)
            descent.descend(g)

    def curvature(self, descent: Descent, w: Params, g: Params) -> Params:
        """∇²f(w; D'') g ≈ (∇f(w + delta g; D'') - ∇f(w - delta g; D'')) / (2 delta)."""
        D = descent.draw()
        ahead, behind = (descent.gradient(D, at=w + s * self.delta * g) for s in (1, -1))
        return (ahead - behind) / (2 * self.delta)

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the model as received, and after one step, which is discarded."""
        model.load_into(client.model)
        received = client.score()
        plain = replace(self.local.tuning(1), optimizer="sgd", momentum=0.0, weight_decay=0.0)
        replace(plain, steps=1, lr=self.alpha).run(client)
        return {"global": received, "tuned": client.score()}
