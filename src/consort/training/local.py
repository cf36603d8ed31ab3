"""Local training: mini-batch steps on a client's own data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Generator, Tensor

from consort.core.bounds import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Probability,
)
from consort.core.params import Params
from consort.core.registry import did_you_mean
from consort.data.examples import Examples
from consort.errors import Failure, Tellable, UsageError
from consort.tasks import Task
from consort.training.augmentation import Repeat, augmentation_of, balancing_of, transform_of
from consort.training.batches import shuffled_batches
from consort.training.client import Client
from consort.training.cohort import Cohort
from consort.training.descent import Descent, Loop
from consort.training.mode import moving, use_running_statistics_for_one
from consort.training.moments import keep_moments, recall_moments
from consort.training.objectives import (
    Adjust,
    Found,
    Gradients,
    Objective,
    Step,
    gradients_of_sum,
    task_losses,
)
from consort.training.optimizers import (
    OWN,
    Optimizer,
    clip_by_norm,
    make_optimizer,
    optimizer_class,
)
from consort.training.scoring import BATCH, recompute_statistics

_LARGEST = 1e30  # of a rate; optimisers multiply it, and single precision ends at 3.4e38


@dataclass(frozen=True)
class Trained:
    """The result of local training."""

    loss: float
    """The mean loss over all steps."""
    steps: int
    """The number of steps."""


@dataclass(frozen=True)
class LocalTraining:
    """Mini-batch training on one client's data; by default every call has a new optimiser.

    Examples:
        >>> from consort import LocalTraining
        >>> local = LocalTraining(epochs=5, lr=0.1, schedule="exponential", decay=0.5)
        >>> [local.rate(round, rounds=3) for round in (1, 2, 3)]
        [0.1, 0.05, 0.025]
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    epochs: PositiveInt = 1
    """The number of passes over the training examples."""
    steps: PositiveInt | None = None
    """The number of steps in all, in the place of `epochs`."""
    batch: PositiveInt = 32
    """The number of examples in a batch."""
    optimizer: str = "sgd"
    """The optimiser: sgd, adam, adamw, a class of `torch.optim` such as RMSprop, or the place of a
    class of your own, as `file.py:Class`."""
    optimizer_options: dict[str, bool | int | float | list[float]] = field(default_factory=dict)
    """Further options of a class of `torch.optim`."""
    lr: NonNegativeFloat = 0.01
    """The learning rate."""
    momentum: Probability = 0.0
    """The momentum of SGD."""
    weight_decay: NonNegativeFloat = 0.0
    """The weight decay."""
    keep_optimizer: bool = False
    """Whether a client keeps the moments of its optimiser (sgd, adam or adamw) from round to
    round, or starts every round with a new one."""
    clip: PositiveFloat | None = None
    """The largest norm of a step's gradient."""
    schedule: Literal["constant", "cosine", "exponential"] = "constant"
    """How the learning rate changes over the rounds."""
    warmup: NonNegativeInt = 0
    """The number of rounds, or epochs, over which the learning rate grows linearly."""
    warmup_unit: Literal["rounds", "epochs"] = "rounds"
    """What `warmup` counts; a round that has begun in it belongs to it as a whole."""
    decay: PositiveFloat = 0.99
    """The factor per round of the exponential schedule."""
    task_weights: dict[str, float] = field(default_factory=dict)
    """The weight of each task's loss in the sum; 1 for a task that is not listed."""
    balance: bool = False
    """Whether examples are repeated until they are balanced, by the balancing that the tasks
    name."""
    repeat: Repeat = "smaller"
    """Which examples `balance` repeats: those of the smaller class, or, as a control that does not
    balance, as many of the larger class or of any."""
    augment: bool | str = False
    """Whether examples are augmented, by the augmentation that the tasks name; or the name of
    another augmentation."""

    transform: str | Callable[[Any], Any] | None = None
    """A function of a batch of inputs, applied to every training batch, or its place; it may draw
    from torch's generator, which depends on the seed."""

    def __new__(cls, *_: Any, **settings: Any) -> Self:
        """Refuses unknown settings with the nearest known one."""
        known = [option.name for option in fields(cls)]
        for name in settings:
            if name not in known:
                raise UsageError(f"local training has no setting {did_you_mean(name, known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for name in ("lr", "weight_decay"):
            if getattr(self, name) > _LARGEST:
                raise UsageError(
                    f"{name} = {getattr(self, name):g} is beyond {_LARGEST:g}, more than single "
                    "precision bears: lower it"
                )
        if isinstance(self.augment, str):
            augmentation_of({}, self.augment)  # refuses an unknown name before anything runs
        if self.optimizer not in OWN:
            optimizer_class(self.optimizer)
            if self.keep_optimizer:
                raise UsageError(
                    f"local.keep_optimizer: the state of {self.optimizer} is not kept between "
                    f"rounds: choose one of {', '.join(OWN)}"
                )
        if self.transform is not None:
            transform_of(self.transform)

    def run(
        self,
        client: Client | Cohort,
        *,
        objective: Objective = task_losses,
        gradients: Gradients = gradients_of_sum,
        adjust: Adjust | None = None,
        only: Sequence[str] = (),
        examples: Examples | None = None,
        loop: Loop | None = None,
    ) -> Trained:
        """Trains the client's model in place.

        Args:
            client: The client, or a cohort of clients.
            objective: Computes the losses of a batch; by default those of the tasks.
            gradients: Computes gradients from losses; by default those of the sum of the losses.
            adjust: Changes the gradients before each step.
            only: The roles that are trained; by default all.
            examples: Examples in the place of the client's training data, neither balanced nor
                augmented.
            loop: Decides what is done with the batches, in the place of one step on each.

        Returns:
            The mean loss and the number of steps; of a `loop`, the number of gradients.

        Raises:
            Failure: If the loss is not finite, or a cohort is not to be trained in the default way.
            UsageError: If the model has no parameters with the roles in `only`, or a protection
                replaces the steps that `loop` decides on.
        """
        if isinstance(client, Cohort):
            usual = objective is task_losses and gradients is gradients_of_sum and loop is None
            if only or not usual:
                raise Failure(
                    "a cohort trains whole models with the default objective: set "
                    "compute.cohort_step = false"
                )
            return self._run_cohort(client, adjust)
        rate = self.rate(client.round, client.rounds)
        total, steps = 0.0, 0
        with moving(client.model, only) as (names, params):
            values = [param.detach() for param in params]
            if loop is not None:
                step = self._step(client, objective, gradients, names, params)
                return self._run_loop(client, loop, step, names, values, adjust, examples)
            optimizer = self._optimizer(client, names, values)
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
            for batch in self._transformed(batches):
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
            self._finish(optimizer, client, names)
        return Trained(total / max(steps, 1), steps)

    def _transformed(self, batches: Iterator[Examples]) -> Iterator[Examples]:
        if self.transform is None:
            return batches
        transform = transform_of(self.transform)
        return (batch.changed(transform) for batch in batches)

    def _new_optimizer(self) -> Optimizer:
        return make_optimizer(
            self.optimizer, self.momentum, self.weight_decay, self.optimizer_options
        )

    def _optimizer(
        self, client: Client, names: Sequence[str], values: Sequence[Tensor]
    ) -> Optimizer:
        """A new optimiser, or the one that this training of the client had in its last round."""
        client.trainings += 1
        optimizer = self._new_optimizer()
        if self.keep_optimizer:
            recall_moments(optimizer, client, names, values)
        return optimizer

    def _finish(self, optimizer: Optimizer, client: Client, names: Sequence[str]) -> None:
        if self.keep_optimizer:
            keep_moments(optimizer, client, names)

    def _run_loop(
        self,
        client: Client,
        loop: Loop,
        step: Step,
        names: Sequence[str],
        values: Sequence[Tensor],
        adjust: Adjust | None,
        examples: Examples | None,
    ) -> Trained:
        """Lets an algorithm decide what is done with the batches."""
        if client.steps:
            raise UsageError(
                "a protection replaces the steps of local training, which this algorithm takes in "
                "a loop of its own: choose another algorithm or protection"
            )
        examples = examples or self.prepared(client)
        descent = Descent(
            local=self,
            client=client,
            batches=self._transformed(self.batches(examples, client.generator)),
            examples=examples,
            names=names,
            values=values,
            step=step,
            optimizer=self._optimizer(client, names, values),
            adjust=adjust,
        )
        loop(descent)
        self._finish(descent.optimizer, client, names)
        count = len(descent.losses)
        return Trained(sum(descent.losses) / max(count, 1), count)

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
        """Takes the same steps for all clients of a cohort at once."""
        optimizer = self._new_optimizer()
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
        """The mean loss per example of the client's model in evaluation mode.

        Args:
            client: The client.
            examples: The examples to evaluate on.
            objective: Computes the losses of a batch; by default those of the tasks.

        Returns:
            The loss; infinity if it is not finite.
        """
        if client.model.batchnorm == "recompute":
            recompute_statistics(client.model, client.data.train)
        client.model.eval()
        total = 0.0
        for batch in examples.batches(BATCH):
            losses = self.weighted(objective(client, batch))
            total += len(batch) * sum(loss.item() for loss in losses.values())
        return total / max(len(examples), 1) if math.isfinite(total) else math.inf

    def choose(self, client: Client, models: Sequence[Params], examples: Examples) -> int:
        """Loads the parameters with the smallest loss into the client's model.

        Args:
            client: The client.
            models: The parameters to choose from.
            examples: The examples on which the loss is computed.

        Returns:
            The position of the chosen parameters; the first one of equally good ones.
        """
        losses = []
        for model in models:
            model.load_into(client.model)
            losses.append(self.loss(client, examples))
        best = losses.index(min(losses))
        models[best].load_into(client.model)
        return best

    @property
    def fits_cohorts(self) -> bool:
        """Whether a cohort can train with these settings: whole epochs, nothing done per client."""
        plain = self.steps is None and self.clip is None and self.optimizer in OWN
        own = self.balance or self.augment or self.transform or self.keep_optimizer
        return plain and not own

    def prepared(self, client: Client) -> Examples:
        """The training data of `client`, balanced and augmented as the settings say."""
        examples, tasks, generator = client.data.train, client.tasks, client.generator
        if self.balance:
            examples = balancing_of(tasks)(examples, tasks, generator, self.repeat)
        if self.augment:
            examples = augmentation_of(tasks, self.augment)(examples, tasks, generator)
        return examples

    def check(self, tasks: Mapping[str, Task]) -> None:
        """Refuses options that do not fit together or that these tasks do not know.

        Args:
            tasks: The tasks of a client.

        Raises:
            UsageError: If training with these options would fail.
        """
        self._new_optimizer()
        if self.balance:
            balancing_of(tasks)
        if self.augment:
            augmentation_of(tasks, self.augment)

    def weighted(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """The `losses` by task, each multiplied by the task's weight."""
        if not self.task_weights:
            return losses
        return {name: loss * self.task_weights.get(name, 1.0) for name, loss in losses.items()}

    def checked(self, loss: float, round: int) -> float:
        """Checks that the training loss is finite.

        Args:
            loss: The loss.
            round: The current round, for the error message.

        Returns:
            The loss.

        Raises:
            Tellable: If the loss is not finite.
        """
        if not math.isfinite(loss):
            raise Tellable(
                f"the training loss became {loss} in round {round}: lower the learning rate "
                f"(local.lr = {self.lr}) or limit the gradient (local.clip)"
            )
        return loss

    def batches(self, examples: Examples, generator: Generator) -> Iterator[Examples]:
        """Draws shuffled batches for all epochs or steps.

        Args:
            examples: The examples to draw from.
            generator: The source of randomness.

        Returns:
            One batch at a time; the last one of an epoch may be smaller.
        """
        return shuffled_batches(examples, generator, self.batch, self.epochs, self.steps)

    def tuning(self, epochs: int) -> LocalTraining:
        """The same settings for `epochs` of fine-tuning, at the full, constant learning rate."""
        fresh = replace(self, keep_optimizer=False)
        return replace(fresh, epochs=epochs, steps=None, schedule="constant", warmup=0)

    def rate(self, round: int, rounds: int) -> float:
        """The learning rate in the given `round` of all `rounds`, counted from 1.

        Args:
            round: The round.
            rounds: The number of rounds.

        Raises:
            Tellable: If a schedule has let it grow beyond what single precision bears.
        """
        try:
            rate = self._scheduled(round, rounds)
        except OverflowError:
            rate = math.inf
        if rate > _LARGEST:
            raise Tellable(
                f"the learning rate of round {round} is more than single precision bears: lower "
                f"local.lr = {self.lr:g} or local.decay = {self.decay:g}"
            )
        return rate

    def _scheduled(self, round: int, rounds: int) -> float:
        warmup = self.warmup
        if self.warmup_unit == "epochs":
            warmup = math.ceil(warmup / self.epochs)
        if round <= warmup:
            return self.lr * round / (warmup + 1)
        passed = round - 1 - warmup
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * passed / max(rounds - warmup, 1)))
        if self.schedule == "exponential":
            return self.lr * self.decay**passed
        return self.lr
