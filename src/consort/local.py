"""What a client does between receiving and answering: steps on its own data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor, nn

from consort.client import Client
from consort.data.examples import Examples
from consort.errors import Failure
from consort.optimizers import clip_by_norm, make_optimizer
from consort.params import Params, has_role

Objective = Callable[[Client, Examples], dict[str, Tensor]]
"""Turns a batch into named losses, one per task and one per added term."""
Gradients = Callable[[dict[str, Tensor], Sequence[str], Sequence[Tensor]], Sequence[Tensor]]
"""Turns the losses into one gradient per parameter: (losses, names, parameters)."""
Adjust = Callable[[Sequence[str], Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""Changes the gradients before the step: (names, parameters, gradients)."""


def task_losses(client: Client, batch: Examples) -> dict[str, Tensor]:
    """The loss of each of the client's tasks: the ordinary objective."""
    outputs = client.model(batch.inputs, client.tasks)
    return {
        name: task.loss(outputs[name], batch.targets[name]) for name, task in client.tasks.items()
    }


def pull_towards(anchor: Params, strength: float) -> Adjust:
    """Adds the gradient of `strength / 2 * ||w - anchor||²` for the parameters in `anchor`."""

    def adjust(
        names: Sequence[str], params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        return [
            grad.add(param.detach() - anchor[name], alpha=strength) if name in anchor else grad
            for name, param, grad in zip(names, params, grads, strict=True)
        ]

    return adjust


def shift_by(direction: Params) -> Adjust:
    """Adds a fixed vector to every gradient."""

    def adjust(
        names: Sequence[str], _: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        return [
            grad + direction[name] if name in direction else grad
            for name, grad in zip(names, grads, strict=True)
        ]

    return adjust


@dataclass(frozen=True)
class Trained:
    """What happened during local training."""

    loss: float
    steps: int


@dataclass(frozen=True)
class LocalTraining:
    """Mini-batch training on one client's data; every call starts with a new optimiser."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    epochs: int = 1
    steps: int | None = None
    """If given, so many steps in all, in place of `epochs`."""
    batch: int = 32
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    """Largest norm of a step's gradient."""
    schedule: Literal["constant", "cosine", "exponential"] = "constant"
    warmup: int = 0
    """Rounds over which the rate grows from nearly nothing."""
    decay: float = 0.99
    """Factor per round of the exponential schedule."""
    task_weights: dict[str, float] = field(default_factory=dict)
    """Weight of a task's loss in the sum, 1 unless given."""

    def run(
        self,
        client: Client,
        *,
        objective: Objective = task_losses,
        gradients: Gradients | None = None,
        adjust: Adjust | None = None,
        only: Sequence[str] = (),
    ) -> Trained:
        """Trains the client's model in place; `only` names the roles that move."""
        optimizer = make_optimizer(self.optimizer, self.momentum, self.weight_decay)
        gradients = gradients or self.gradients_of_sum
        rate = self.rate(client.round, client.rounds)
        total, steps = 0.0, 0
        with moving(client.model, only) as (names, params):
            for batch in self.batches(client.data.train, client.generator):
                use_running_statistics_for_one(client.model, batch)
                losses = objective(client, batch)
                grads = gradients(losses, names, params)
                if adjust is not None:
                    grads = adjust(names, params, grads)
                if self.clip is not None:
                    grads = clip_by_norm(grads, self.clip)
                with torch.no_grad():
                    optimizer.step(params, list(grads), rate)
                total += self.value(losses, client)
                steps += 1
        return Trained(total / max(steps, 1), steps)

    def gradients_of_sum(
        self, losses: dict[str, Tensor], _: Sequence[str], params: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The gradient of the weighted sum of all losses."""
        return torch.autograd.grad(
            self.weighted_sum(losses), params, allow_unused=True, materialize_grads=True
        )

    def weighted_sum(self, losses: dict[str, Tensor]) -> Tensor:
        """All losses, each times its task's weight."""
        if not self.task_weights and len(losses) == 1:
            return next(iter(losses.values()))
        return torch.stack([self.task_weights.get(n, 1.0) * v for n, v in losses.items()]).sum()

    def value(self, losses: dict[str, Tensor], client: Client) -> float:
        """The sum as a number; a loss that is no number ends the training."""
        value = self.weighted_sum(losses).item()
        if not math.isfinite(value):
            raise Failure(
                f"the training loss became {value} in round {client.round}: lower the learning "
                f"rate (local.lr = {self.lr}) or limit the gradient (local.clip)"
            )
        return value

    def batches(self, examples: Examples, generator: Generator) -> Iterator[Examples]:
        """Shuffled batches for all epochs (or steps); one gather per epoch, then views."""
        per_epoch = -(-len(examples) // self.batch)
        left = self.steps if self.steps is not None else self.epochs * per_epoch
        while left > 0:
            order = torch.randperm(len(examples), generator=generator)
            shuffled = examples.take(order)
            for start in range(0, len(examples), self.batch)[:left]:
                yield shuffled.rows(start, start + self.batch)
            left -= per_epoch

    def rate(self, round: int, rounds: int) -> float:
        """The learning rate in a round (rounds count from 1)."""
        if round <= self.warmup:
            return self.lr * round / (self.warmup + 1)
        passed = round - 1 - self.warmup
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * passed / max(rounds - self.warmup, 1)))
        if self.schedule == "exponential":
            return self.lr * self.decay**passed
        return self.lr


@contextmanager
def moving(
    model: nn.Module, only: Sequence[str]
) -> Iterator[tuple[list[str], list[Tensor]]]:
    """Training mode, with every parameter frozen that has none of the roles in `only`."""
    named = list(model.named_parameters())
    chosen = [(n, p) for n, p in named if not only or any(has_role(n, role) for role in only)]
    frozen = [p for n, p in named if only and not any(has_role(n, role) for role in only)]
    model.train()
    for param in frozen:
        param.requires_grad_(False)
    try:
        yield [name for name, _ in chosen], [param for _, param in chosen]
    finally:
        for param in frozen:
            param.requires_grad_(True)


def use_running_statistics_for_one(model: nn.Module, batch: Examples) -> None:
    """BatchNorm cannot take the variance of a single example: such a batch is run as in testing."""
    if model.training != (len(batch) > 1):
        model.train(len(batch) > 1)
