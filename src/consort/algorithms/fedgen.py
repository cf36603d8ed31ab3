"""Shared heads that also learn from generated features (FedGen).

Zhu, Hong and Zhou: Data-Free Knowledge Distillation for Heterogeneous Federated Learning,
ICML 2021. `round` is one round of Algorithm 1, for clients that share heads only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from consort.algorithms._own_model import MODEL
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.bounds import NonNegativeFloat, PositiveFloat, PositiveInt
from consort.core.contract import Count, Model
from consort.core.contract_groups import ByTask, LabelCounts
from consort.core.messages import Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import Failure
from consort.training.client import Client
from consort.training.linear_heads import class_loss, head_output, linear_heads
from consort.training.local import LocalTraining
from consort.training.objectives import Objective, task_losses
from consort.training.optimizers import make_optimizer

Tensors = dict[str, Tensor]


class Maker(nn.Module):
    """The generator G: from a label and noise to features, with one hidden layer and BatchNorm."""

    def __init__(self, noise: int, labels: int, hidden: int, features: int) -> None:
        super().__init__()
        self.noise, self.labels = noise, labels
        self.hidden = nn.Linear(noise + labels, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.output = nn.Linear(hidden, features)

    def forward(self, labels: Tensor, generator: Generator) -> Tensor:
        """One feature vector for each label; the noise is uniform between 0 and 1."""
        noise = torch.rand(len(labels), self.noise, generator=generator)
        known = F.one_hot(labels, self.labels).to(noise.dtype)
        features: Tensor = self.output(self.norm(self.hidden(torch.cat([noise, known], 1))).relu())
        return features

    def draw_weights(self, generator: Generator) -> None:
        """Draws initial weights like those of any linear layer from the given generator."""
        for layer in (self.hidden, self.output):
            limit = layer.in_features**-0.5
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -limit, limit, generator)


@dataclass(frozen=True)
class Server:
    """The global heads; by task, the weights of its generator and how often labels occur."""

    heads: Params
    makers: dict[str, Tensors]
    labels: Tensors


@dataclass(frozen=True)
class FedGen(Algorithm[Server]):
    """Averages heads; clients also train on features of generators that learn from all heads."""

    reports: ClassVar[str] = "personal"
    private: ClassVar[tuple[str, ...]] = ("encoder",)

    local: LocalTraining = LocalTraining()
    strength: NonNegativeFloat = 1.0
    """Weight of the loss on generated features."""
    noise: PositiveInt = 512
    hidden: PositiveInt = 512
    """The sizes of a generator's noise and of its hidden layer."""
    server_steps: PositiveInt = 100
    server_lr: PositiveFloat = 0.005

    def start(self, roster: Roster) -> Server:
        """The common initial heads, which the server must be able to compute."""
        return Server(linear_heads(roster, "fedgen"), {}, {})

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; heads are averaged, and generators learn from all heads together."""
        replies = clients.ask(self.train, **vars(server))
        heads = replies.mean("heads", weight="examples")
        labels, makers = dict(server.labels), dict(server.makers)
        random = clients.generator
        for task, counts in total_labels(replies).items():
            if counts.any():
                labels[task] = counts
                maker = self.maker(heads, task)
                maker.draw_weights(random)
                Params(makers.get(task, {})).load_into(maker)
                self.teach(maker, replies, task, counts, random)
                makers[task] = dict(Params.of(maker))
        return Server(heads, makers, labels)

    def maker(self, heads: Params, task: str) -> Maker:
        """A generator of the size that a task's head needs, with arbitrary weights."""
        return Maker(self.noise, label_count(heads, task), self.hidden, feature_count(heads, task))

    def teach(
        self, maker: Maker, replies: Replies, task: str, labels: Tensor, random: Generator
    ) -> None:
        """Trains a generator so that all heads, weighted by examples, find the labels."""
        voters = [
            (reply["heads"].only(f"heads.{task}"), reply["examples"]) for reply in replies.values()
        ]
        total = sum(examples for _, examples in voters)
        params = list(maker.parameters())
        values = [param.detach() for param in params]
        optimizer = make_optimizer("adam")
        for _ in range(self.server_steps):
            drawn = draw(labels, max(self.local.batch, 2), random)
            features = maker(drawn, random)
            votes = [head_output(head, features) * (n / total) for head, n in voters]
            loss = class_loss(torch.stack(votes).sum(0), drawn)
            optimizer.step(values, list(torch.autograd.grad(loss, params)), self.server_lr)

    @on_client(heads=Model(without=("encoder",)), labels=ByTask(LabelCounts()), examples=Count())
    def train(
        self, client: Client, heads: Params, makers: dict[str, Tensors], labels: Tensors
    ) -> Payload:
        """Local epochs with the global heads, on generated features as well."""
        counts = {
            task: count_labels(client, task, label_count(heads, task)) for task in client.tasks
        }
        install(client, heads)
        trained = {task: self.maker(heads, task) for task in makers}
        for task, maker in trained.items():
            Params(makers[task]).load_into(maker.eval())
        self.local.run(client, objective=self.with_made(trained, labels))
        model = Params.of(client.model)
        client.state[MODEL] = model
        return {
            "heads": model.without("encoder"),
            "labels": counts,
            "examples": client.examples,
        }

    def with_made(self, makers: dict[str, Maker], labels: Tensors) -> Objective:
        """The tasks' losses, on the batch and on as many generated features."""

        def objective(client: Client, batch: Examples) -> dict[str, Tensor]:
            losses = task_losses(client, batch)
            for task, maker in makers.items():
                drawn = draw(labels[task], len(batch), client.generator)
                with torch.no_grad():
                    features = maker(drawn, client.generator)
                output = client.model.output(task, features)
                losses[task] = losses[task] + self.strength * client.tasks[task].loss(output, drawn)
            return losses

        return objective

    def evaluate(self, server: Server, clients: Clients) -> Replies:
        """The global heads on every client's own encoder."""
        return clients.ask(self.test, heads=server.heads)

    @on_client()
    def test(self, client: Client, heads: Params) -> Payload:
        """Scores of the client's own encoder with the global heads."""
        install(client, heads)
        return {"personal": client.score()}


def install(client: Client, heads: Params) -> None:
    """Loads the client's own encoder and the global heads."""
    client.recall(MODEL)
    heads.load_into(client.model)


def feature_count(heads: Params, task: str) -> int:
    """How many features a task's head takes."""
    first, *_ = weights(heads, task)
    return first.shape[1]


def label_count(heads: Params, task: str) -> int:
    """How many labels a task's head distinguishes: two if it has a single logit."""
    *_, last = weights(heads, task)
    return max(len(last), 2)


def weights(heads: Params, task: str) -> list[Tensor]:
    """The weight matrices of a task's head, from the features to the output."""
    return [tensor for tensor in heads.only(f"heads.{task}").values() if tensor.ndim == 2]


def count_labels(client: Client, task: str, labels: int) -> Tensor:
    """How often each label occurs in the training data; a negative label stands for none."""
    target = client.data.train.targets[task]
    if target.ndim != 1 or target.is_floating_point():
        raise Failure(
            f"examples have no labels in task {task!r}, so features cannot be made for them: "
            "choose an algorithm such as lg_fedavg"
        )
    return torch.bincount(target[target >= 0], minlength=labels).float()


def total_labels(replies: Replies) -> Tensors:
    """By task, how often labels occur on all clients together."""
    sums: Tensors = {}
    for counts in replies.each("labels").values():
        for task, found in counts.items():
            sums[task] = sums.get(task, 0) + found
    return sums


def draw(labels: Tensor, count: int, random: Generator) -> Tensor:
    """`count` labels, drawn by their frequency."""
    return torch.multinomial(labels, count, replacement=True, generator=random)
