"""Mutual distillation of private models and a small common one, sent compressed (FedKD).

Wu, Wu, Lyu, Huang and Xie: Communication-efficient federated learning via knowledge distillation,
Nature Communications 13, 2022. `round` is one round of Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from consort.aggregation.low_rank import compress, expand
from consort.algorithms._own_model import MODEL
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import Fraction, PositiveFloat
from consort.core.contract import Model
from consort.core.messages import Payload, Replies
from consort.core.params import Params, mean, slots
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.models.multitask import MultiTaskModel
from consort.training.client import Client
from consort.training.distillation import clip_apart, divergence
from consort.training.local import LocalTraining
from consort.training.objectives import Objective

COMPANION, BRIDGE = "companion", "bridge"
_GUARD = 1e-8


class Bridged(MultiTaskModel):
    """A client's model (mentor) and its companion (mentee), with a linear map between features."""

    def __init__(self, model: MultiTaskModel, weight: Tensor) -> None:
        heads, decoders = (dict(part.items()) for part in (model.heads, model.decoders))
        super().__init__(model.encoder, heads, decoders, model.batchnorm)
        self.companion = model.companion
        self.bridge = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
        self.bridge.weight = nn.Parameter(weight.clone())
        # Both are left in evaluation mode: training sets the mode of all parts of a model.
        model.eval()
        self.eval()


@dataclass(frozen=True)
class Server:
    """The common model, the paper's mentee."""

    companion: Params


@dataclass(frozen=True)
class FedKD(Algorithm[Server]):
    """Mutual distillation of outputs and features, divided by the sum of both models' losses."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder", "decoders", "heads", BRIDGE)

    local: LocalTraining = LocalTraining()
    companion: dict[str, Any] = field(default_factory=dict)
    """The common model, as a table; without one, the smallest of the clients' own."""
    first_energy: Fraction = 0.95
    """The share of the squared singular values of a matrix that is sent in round 1: T_start."""
    last_energy: Fraction = 0.98
    """The same in the last round, T_end; in between it grows linearly."""
    clip: PositiveFloat = 10.0
    """Largest norm of a step's gradient, of each model by itself; the default is HtFLlib's."""

    def start(self, roster: Roster) -> Server:
        """The initial weights of the common model."""
        return Server(roster.accompanied(self.companion).shared(COMPANION))

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train both models; the plain mean of the common ones is the new one."""
        replies = clients.ask(self.train, companion=self.sent(server.companion, clients))
        shapes = server.companion.shapes
        return Server(mean([expand(short, shapes) for short in replies.each(COMPANION).values()]))

    def sent(self, companion: Params, here: Client | Clients) -> Params:
        """The common model as it travels in this round."""
        passed = (here.round - 1) / max(here.rounds - 1, 1)
        return compress(
            companion, self.first_energy + passed * (self.last_energy - self.first_energy)
        )

    @on_client(companion=Model(COMPANION, factors=True))
    def train(self, client: Client, companion: Params) -> Payload:
        """Local epochs of the private model, the common one and the map between their features."""
        load(client, companion)
        known = client.state.get(BRIDGE)
        bridged = Bridged(client.model, new_bridge(client) if known is None else known)
        client.model = bridged
        adjust = clip_apart(self.clip, COMPANION, BRIDGE)
        self.local.run(client, objective=self.mutual_losses(bridged.bridge), adjust=adjust)
        trained = Params.of(bridged)
        client.state[MODEL] = trained.without(COMPANION, BRIDGE)
        client.state[BRIDGE] = trained[f"{BRIDGE}.weight"]
        return {COMPANION: self.sent(trained.only(COMPANION), client)}

    def mutual_losses(self, bridge: nn.Module) -> Objective:
        """Both models' losses by task, and their distillation losses divided by the sum of these.

        No gradient flows through the divisor.
        """

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            own, common = (m.encoder(batch.inputs) for m in (client.model, client.companion))
            losses, apart = {}, [F.mse_loss(own, bridge(common))]
            for name, task in client.tasks.items():
                mine, ours = client.model.output(name, own), client.companion.output(name, common)
                target = batch.targets[name]
                losses[name] = task.loss(mine, target) + task.loss(ours, target)
                apart += [divergence(mine, ours), divergence(ours, mine)]
            total = torch.stack([*losses.values()]).sum().detach().clamp(min=_GUARD)
            return losses | {"distillation": torch.stack(apart).sum() / total}

        return objective

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The common model as sent and every client's private one, on its data."""
        return clients.ask(self.test, companion=self.sent(server.companion, clients))

    @on_client()
    def test(self, client: Client, companion: Params) -> Payload:
        """Scores of the common model as received, and of the private one."""
        load(client, companion)
        return {"global": client.score(client.companion), "personal": client.score()}


def load(client: Client, companion: Params) -> None:
    """Loads the client's private model and the common one as received."""
    client.recall(MODEL)
    shapes = {name: tuple(tensor.shape) for name, tensor in slots(client.model).items()}
    expand(companion, shapes).load_into(client.model)


def new_bridge(client: Client) -> Tensor:
    """A random map from the features of the common model to those of the private one."""
    widths: list[Any] = [model.encoder.width for model in (client.model, client.companion)]
    limit = widths[1] ** -0.5
    return torch.empty(*widths).uniform_(-limit, limit, generator=client.generator)
