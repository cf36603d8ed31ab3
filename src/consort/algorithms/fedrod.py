"""A generic head for all classes, and a personal one for what a client has more of (FedRoD).

Chen and Chao: On Bridging Generic and Personalized Federated Learning for Image Classification,
ICLR 2022. `PersonalHead.step` is the local training of Section 4, with a linear personal head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from consort.algorithms.fedavg import FedAvg, Server
from consort.core.algorithm import on_client
from consort.core.contract import Count, Model
from consort.core.messages import Payload
from consort.core.params import Params, slots
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.tasks.classification import Classification
from consort.training.client import Client
from consort.training.linear_heads import head_output, linear_heads, split_last
from consort.training.local import LocalTraining
from consort.training.optimizers import Optimizer, make_optimizer

PERSONAL = "personal head"
"""The entry of a client's state with its personal head."""


@dataclass
class PersonalHead:
    """The personal head h_p of a client during its local training."""

    head: Params
    local: LocalTraining
    optimizer: Optimizer
    priors: Mapping[str, Tensor]

    def step(self, client: Client, batch: Examples) -> dict[str, Tensor]:
        """The balanced losses of h_g(z); h_p takes a step on the plain loss of h_g(z) + h_p(z).

        The balanced softmax adds log n_c to the logits of every class c (Ren et al., NeurIPS 2020).
        The step of h_p does not move the encoder, nor h_g.
        """
        z = client.model.encoder(batch.inputs)
        moving = Params(
            {name: tensor.clone().requires_grad_() for name, tensor in self.head.items()}
        )
        generic, personal = {}, {}
        for name, task in client.tasks.items():
            y, g = batch.targets[name], client.model.output(name, z)
            u = inputs_of_last_layer(client, name, z.detach())
            p = head_output(moving.only(f"heads.{name}"), u).reshape_as(g)
            generic[name] = task.loss(g + self.priors[name] if name in self.priors else g, y)
            personal[name] = task.loss(g.detach() + p, y)
        self._descend(client, moving, list(self.local.weighted(personal).values()))
        return generic

    def _descend(self, client: Client, moving: Params, losses: list[Tensor]) -> None:
        rate = self.local.rate(client.round, client.rounds)
        slope = torch.autograd.grad(losses, list(moving.values()))
        values = [tensor.detach() for tensor in moving.values()]
        self.optimizer.step(values, list(slope), rate)
        self.head = Params(dict(zip(moving, values, strict=True)))


@dataclass(frozen=True)
class FedRoD(FedAvg):
    """FedAvg with a balanced loss, and on every client a head that is added to the global one."""

    reports: ClassVar[str] = "personal"

    def start(self, roster: Roster) -> Server:
        """The common initial model, whose heads must be linear so that two of them add up."""
        model = roster.shared()
        linear_heads(roster, "fedrod")
        return Server(model)

    @on_client(model=Model(), examples=Count())
    def train(self, client: Client, model: Params) -> Payload:
        """Local epochs of the encoder and h_g on the balanced loss, and of h_p beside them."""
        model.load_into(client.model)
        local = self.local
        personal = PersonalHead(
            client.state.get(PERSONAL, last_layers(client, model).zeros()),
            local,
            make_optimizer(local.optimizer, local.momentum, local.weight_decay),
            label_priors(client),
        )
        local.run(client, objective=personal.step)
        client.state[PERSONAL] = personal.head
        return {"model": Params.of(client.model), "examples": client.examples}

    @on_client()
    def test(self, client: Client, model: Params) -> Payload:
        """Scores of the global model, and with the client's personal head added to its heads."""
        model.load_into(client.model)
        received = client.score()
        if PERSONAL in client.state:
            (last_layers(client, model) + client.state[PERSONAL]).load_into(client.model)
        return {"global": received, "personal": client.score()}


def last_layers(client: Client, model: Params) -> Params:
    """The last layer of the head of every task; what comes before it belongs to the features."""
    found = Params({})
    for task in client.tasks:
        found = found | split_last(model.only(f"heads.{task}"))[1]
    return found


@torch.no_grad()
def inputs_of_last_layer(client: Client, task: str, z: Tensor) -> Tensor:
    """What the last layer of a head receives: the features z, if the head is a single layer."""
    before, _ = split_last(Params(slots(client.model)).only(f"heads.{task}"))
    return head_output(before, z).relu() if before else z


def label_priors(client: Client) -> dict[str, Tensor]:
    """By task: the logarithm of how often the client has each class; -inf for those it lacks."""
    found = {}
    for name, task in client.tasks.items():
        if isinstance(task, Classification):
            labels = client.data.train.targets[name]
            found[name] = torch.bincount(labels, minlength=task.classes).float().log()
    return found
