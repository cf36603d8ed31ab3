"""Averages that learn from the mean prediction of all clients on the server's data (FedDF).

Lin, Kong, Stich and Jaggi: Ensemble Distillation for Robust Model Fusion in Federated Learning,
NeurIPS 2020. `round` is one round of Algorithm 1, and of Algorithm 3 for clients whose
architectures differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.algorithms._per_task import group_means, models_for
from consort.algorithms.fedavg_per_task import FedAvgPerTask, Server
from consort.core.algorithm import Clients
from consort.core.bounds import NonNegativeFloat, PositiveInt
from consort.core.clients import NO_SERVER_DATA
from consort.core.messages import Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.data.examples import Examples
from consort.errors import NoReplies, UsageError
from consort.tasks.classification import Classification
from consort.training.client import Client
from consort.training.distillation import divergence
from consort.training.local import LocalTraining
from consort.training.scoring import BATCH, recompute_statistics


@dataclass(frozen=True)
class FedDF(FedAvgPerTask):
    """FedAvg for every architecture, and then distillation of all clients into each mean."""

    server_steps: PositiveInt = 100
    """Steps of distillation in a round, the paper's N."""
    server_batch: PositiveInt = 128
    """Examples of the server in a step."""
    server_lr: NonNegativeFloat = 0.001
    """Learning rate of these steps, with Adam."""

    def start(self, roster: Roster) -> Server:
        """The initial model of every architecture; outputs must be the same for all."""
        first, *others = roster.ids
        for other in others:
            if outputs(roster, other) != outputs(roster, first):
                raise UsageError(
                    "feddf averages the predictions of all clients, but clients "
                    f"{first} and {other} differ in tasks or classes"
                )
        if not roster.server_data:
            raise UsageError(f"feddf: {NO_SERVER_DATA}")
        return super().start(roster)

    def round(self, server: Server, clients: Clients) -> Server:
        """All clients train; the mean of every architecture learns from their mean prediction."""
        replies = clients.ask(self.train, model=models_for(server.models, server.alike, clients))
        if not replies:
            raise NoReplies("no client trained")
        taught = ensemble(replies, clients)
        models = dict(server.models)
        for group, mean in group_means(replies, server.alike).items():
            models[group] = self.distilled(clients.server_side(group), mean, taught)
        return Server(models, server.alike)

    def distilled(self, student: Client, mean: Params, taught: Examples) -> Params:
        """x -= eta ∇KL(mean prediction, prediction of x), from the mean of the clients' models."""
        mean.load_into(student.model)
        plan = LocalTraining(
            steps=self.server_steps, batch=self.server_batch, optimizer="adam", lr=self.server_lr
        )
        plan.run(student, objective=imitation, examples=taught)
        return Params.of(student.model)


def outputs(roster: Roster, client: str) -> dict[str, int]:
    """How many outputs each task of a client has: the rows of the last tensor of its head."""
    heads = {task: roster.model(client).only(f"heads.{task}") for task in roster.tasks[client]}
    return {task: len([*head.values()][-1]) if head else 0 for task, head in heads.items()}


def ensemble(replies: Replies, clients: Clients) -> Examples:
    """The server's examples; their targets are the mean outputs of the clients' models."""
    sums: dict[str, Tensor] = {}
    for client, reply in replies.items():
        teacher = clients.server_side(client)
        reply["model"].load_into(teacher.model)
        for task, output in predictions(teacher).items():
            sums[task] = sums[task] + output if task in sums else output
    inputs = teacher.data.train.inputs
    return Examples(inputs, {task: total / len(replies) for task, total in sums.items()})


@torch.no_grad()
def predictions(teacher: Client) -> dict[str, Tensor]:
    """The outputs of a model for all examples of the server, in evaluation mode."""
    public = teacher.data.train
    if teacher.model.batchnorm != "average":  # its statistics did not come along
        recompute_statistics(teacher.model, public)
    teacher.model.eval()
    found = [teacher.model(batch.inputs, teacher.tasks) for batch in public.batches(BATCH)]
    return {task: torch.cat([part[task] for part in found]) for task in teacher.tasks}


def imitation(client: Client, batch: Examples) -> dict[str, Tensor]:
    """The divergence from the mean prediction; for other outputs than logits, the distance."""
    found = client.model(batch.inputs, client.tasks)
    return {
        name: (divergence if isinstance(task, Classification) else F.mse_loss)(
            found[name], batch.targets[name]
        )
        for name, task in client.tasks.items()
    }
