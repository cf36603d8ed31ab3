"""A common model that clients train beside their own by mutual distillation (FML).

Shen, Zhang, Jia, Zhang, Huang, Zhou, Kuang, Wu and Wu: Federated Mutual Learning, arXiv
2006.16765, 2020. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from consort.algorithms._own_model import MODEL
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import PositiveFloat, Probability
from consort.core.contract import Model
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.distillation import clip_apart, divergence
from consort.training.local import LocalTraining

COMPANION = "companion"


@dataclass(frozen=True)
class Server:
    """The common model, the paper's meme."""

    companion: Params


@dataclass(frozen=True)
class FML(Algorithm[Server]):
    """Private models of any architecture, and a common one that distils with each of them."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads")
    averages: ClassVar = {COMPANION: None}

    local: LocalTraining = LocalTraining()
    companion: dict[str, Any] = field(default_factory=dict)
    """The common model, as a table; without one, the smallest of the clients' own."""
    alpha: Probability = 0.5
    """Weight of the labels for the private model; the rest is the distillation loss."""
    beta: Probability = 0.5
    """Weight of the labels for the common model; the rest is the distillation loss."""
    clip: PositiveFloat = 10.0
    """Largest norm of a step's gradient, of each model by itself; the default is HtFLlib's."""

    def start(self, roster: Roster) -> Server:
        """The initial weights of the common model."""
        return Server(roster.accompanied(self.companion).shared(COMPANION))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train both models; the plain mean of the common ones is the new one."""
        return Server(clients.ask(self.train, companion=server.companion).mean(COMPANION))

    @on_client(companion=Model(COMPANION))
    def train(self, client: Client, companion: Params) -> Payload:
        """Local epochs of the private and the common model, in the same steps."""
        client.recall(MODEL)
        companion.load_into(client.model)
        adjust = clip_apart(self.clip, COMPANION)
        self.local.run(client, objective=self.mutual_losses, adjust=adjust)
        both = Params.of(client.model)
        client.state[MODEL] = both.without(COMPANION)
        return {COMPANION: both.only(COMPANION)}

    def mutual_losses(self, client: Client, batch: Examples) -> dict[str, Tensor]:
        """L_private = alpha CE + (1 - alpha) KL and L_common = beta CE + (1 - beta) KL, added up.

        Neither loss has a gradient with respect to the other model.
        """
        own, common = (model(batch.inputs) for model in (client.model, client.companion))
        losses = {}
        for name, task in client.tasks.items():
            mine, ours, target = own[name], common[name], batch.targets[name]
            learnt = self.alpha * task.loss(mine, target) + self.beta * task.loss(ours, target)
            taught = (1 - self.alpha) * divergence(mine, ours)
            losses[name] = learnt + taught + (1 - self.beta) * divergence(ours, mine)
        return losses

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The common model and every client's own, on its data."""
        return clients.ask(self.test, companion=server.companion)

    @on_client()
    def test(self, client: Client, companion: Params) -> Payload:
        """Scores of the common model as received, and of the client's own."""
        companion.load_into(client.model)
        client.recall(MODEL)
        return {"global": client.score(client.companion), "personal": client.score()}
