"""What a client does between receiving and answering: steps on its own data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import ClassVar, Literal

import torch
from torch import Generator, Tensor

from consort.core.bounds import Count, CountOrNone, NotNegative, Positive, Probability
from consort.core.params import Params
from consort.data.examples import Examples
from consort.errors import Failure
from consort.tasks import Task
from consort.training.augmentation import Repeat, augmentation_of, balancing_of
from consort.training.client import Client
from consort.training.cohort import Cohort
from consort.training.mode import moving, use_running_statistics_for_one
from consort.training.objectives import (
    Adjust,
    Found,
    Gradients,
    Objective,
    Step,
    gradients_of_sum,
    task_losses,
)
from consort.training.optimizers import clip_by_norm, make_optimizer
from consort.training.scoring import BATCH, recompute_statistics

_GATHERED = 1 << 18  # numbers that are shuffled at a time, if more than an epoch is that small


@dataclass(frozen=True)
class Trained:
    """What happened during local training."""

    loss: float
    steps: int


@dataclass(frozen=True)
class LocalTraining:
    """Mini-batch training on one client's data; every call starts with a new optimiser."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    epochs: Count = 1
    steps: Count | None = None
    """If given, so many steps in all, in place of `epochs`."""
    batch: Count = 32
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: NotNegative = 0.01
    momentum: Probability = 0.0
    weight_decay: NotNegative = 0.0
    clip: Positive | None = None
    """Largest norm of a step's gradient."""
    schedule: Literal["constant", "cosine", "exponential"] = "constant"
    warmup: CountOrNone = 0
    """Rounds over which the rate grows from nearly nothing."""
    decay: Positive = 0.99
    """Factor per round of the exponential schedule."""
    task_weights: dict[str, float] = field(default_factory=dict)
    """Weight of a task's loss in the sum, 1 unless given."""
    balance: bool = False
    """Repeats examples until they are balanced in the way that the tasks name."""
    repeat: Repeat = "smaller"
    """What `balance` repeats: the smaller kind; the others make as many, and no balance."""
    augment: bool | str = False
    """Varies each example at random, anew in every call, by the augmentation that the tasks name,
    or by another one that is named here."""

    def __post_init__(self) -> None:
        if isinstance(self.augment, str):
            augmentation_of({}, self.augment)  # refuses an unknown name before anything runs

    def run(
        self,
        client: Client | Cohort,
        *,
        objective: Objective = task_losses,
        gradients: Gradients = gradients_of_sum,
        adjust: Adjust | None = None,
        only: Sequence[str] = (),
        examples: Examples | None = None,
    ) -> Trained:
        """Trains the client's model in place; `only` names the roles that move.

        `examples` take the place of the client's training data, just as they are.
        """
        if isinstance(client, Cohort):
            if only or objective is not task_losses or gradients is not gradients_of_sum:
                raise Failure("a cohort has the ordinary objective and moves as a whole")
            return self._run_cohort(client, adjust)
        optimizer = make_optimizer(self.optimizer, self.momentum, self.weight_decay)
        rate = self.rate(client.round, client.rounds)
        total, steps = 0.0, 0
        with moving(client.model, only) as (names, params):
            values = [param.detach() for param in params]
            if client.steps:
                step, batches = client.steps(
                    self,
                    client,
                    objective=objective,
                    gradients=gradients,
                    examples=examples,
                    names=names,
                    params=params,
                )
            else:
                step = self._step(client, objective, gradients, names, params)
                batches = self.batches(examples or self.prepared(client), client.generator)
            for batch in batches:
                use_running_statistics_for_one(client.model, batch)
                losses, grads = step(batch)
                if adjust is not None:
                    grads = adjust(names, values, grads)
                if self.clip is not None:
                    grads = clip_by_norm(grads, self.clip)
                optimizer.step(values, list(grads), rate)
                for loss in losses:
                    total += loss.item()
                steps += 1
                self.checked(total, client.round)
        return Trained(total / max(steps, 1), steps)

    def _step(
        self,
        client: Client,
        objective: Objective,
        gradients: Gradients,
        names: Sequence[str],
        params: Sequence[Tensor],
    ) -> Step:
        """From a batch to its losses and gradients."""

        def step(batch: Examples) -> Found:
            losses = self.weighted(objective(client, batch))
            return list(losses.values()), gradients(losses, names, params)

        return step

    def _run_cohort(self, cohort: Cohort, adjust: Adjust | None) -> Trained:
        """The same steps for all clients of a cohort at once."""
        optimizer = make_optimizer(self.optimizer, self.momentum, self.weight_decay)
        rate = self.rate(cohort.round, cohort.rounds)
        names, params = list(cohort.model.slots()), list(cohort.model.slots().values())
        total, steps = 0.0, 0
        for batch in cohort.batches(self.batch, self.epochs):
            found, losses = cohort.gradients(batch, self.task_weights)
            grads: Sequence[Tensor] = [found[name] for name in names]
            if adjust is not None:
                grads = adjust(names, params, grads)
            optimizer.step(params, list(grads), rate)
            total += self.checked(losses.mean().item(), cohort.round)
            steps += 1
        return Trained(total / max(steps, 1), steps)

    @torch.inference_mode()
    def loss(self, client: Client, examples: Examples, objective: Objective = task_losses) -> float:
        """The mean loss per example of the model as it is tested; infinite if it is no number."""
        if client.model.batchnorm == "recompute":
            recompute_statistics(client.model, client.data.train)
        client.model.eval()
        total = 0.0
        for batch in examples.batches(BATCH):
            losses = self.weighted(objective(client, batch))
            total += len(batch) * sum(loss.item() for loss in losses.values())
        return total / max(len(examples), 1) if math.isfinite(total) else math.inf

    def choose(self, client: Client, models: Sequence[Params], examples: Examples) -> int:
        """Loads the model with the smallest loss, the first of several such, and says which."""
        losses = []
        for model in models:
            model.load_into(client.model)
            losses.append(self.loss(client, examples))
        best = losses.index(min(losses))
        models[best].load_into(client.model)
        return best

    @property
    def fits_cohorts(self) -> bool:
        """Whether a cohort can take these steps: so many epochs, nothing done per client."""
        return self.steps is None and self.clip is None and not (self.balance or self.augment)

    def prepared(self, client: Client) -> Examples:
        """The client's training data, with what is to be done to them before every training."""
        examples, tasks, generator = client.data.train, client.tasks, client.generator
        if self.balance:
            examples = balancing_of(tasks)(examples, tasks, generator, self.repeat)
        if self.augment:
            examples = augmentation_of(tasks, self.augment)(examples, tasks, generator)
        return examples

    def check(self, tasks: Mapping[str, Task]) -> None:
        """Refuses options that do not fit together or that these tasks do not know.

        Raises:
            UsageError: Training with these options would fail.
        """
        make_optimizer(self.optimizer, self.momentum, self.weight_decay)
        if self.balance:
            balancing_of(tasks)
        if self.augment:
            augmentation_of(tasks, self.augment)

    def weighted(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Every loss times its task's weight."""
        if not self.task_weights:
            return losses
        return {name: loss * self.task_weights.get(name, 1.0) for name, loss in losses.items()}

    def checked(self, loss: float, round: int) -> float:
        """The loss, unless it is no number: that ends the training."""
        if not math.isfinite(loss):
            raise Failure(
                f"the training loss became {loss} in round {round}: lower the learning rate "
                f"(local.lr = {self.lr}) or limit the gradient (local.clip)"
            )
        return loss

    def batches(self, examples: Examples, generator: Generator) -> Iterator[Examples]:
        """Shuffled batches for all epochs (or steps); one gather for several epochs, then views."""
        count = len(examples)
        per_epoch = -(-count // self.batch)
        left = self.steps if self.steps is not None else self.epochs * per_epoch
        while left > 0 and count:
            epochs = min(-(-left // per_epoch), max(1, _GATHERED // examples.inputs.numel()))
            orders = [torch.randperm(count, generator=generator) for _ in range(epochs)]
            shuffled = examples.take(torch.cat(orders))
            full, rest = divmod(count, self.batch)
            sizes = ([self.batch] * full + [rest] * bool(rest)) * epochs
            yield from islice(shuffled.split(sizes), left)
            left -= per_epoch * epochs

    def tuning(self, epochs: int) -> LocalTraining:
        """The same for so many epochs, at the full rate: schedules have used it up in the end."""
        return replace(self, epochs=epochs, steps=None, schedule="constant", warmup=0)

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
