"""The steps of local training in the hands of an algorithm: a loop of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from consort.core.params import Params
from consort.data.examples import Examples
from consort.training.mode import use_running_statistics_for_one
from consort.training.objectives import Adjust, Step
from consort.training.optimizers import Optimizer, clip_by_norm

if TYPE_CHECKING:
    from consort.training.client import Client
    from consort.training.local import LocalTraining


@dataclass
class Descent:
    """One local training of a client, for a loop given to `LocalTraining.run(loop=...)`.

    Points and gradients are `Params` of the parameters that are trained.

    Examples:
        Three steps on every batch in the place of one:

        >>> from consort import Descent
        >>> def three_steps(descent: Descent) -> None:
        ...     for batch in descent.batches:
        ...         for _ in range(3):
        ...             descent.descend(descent.gradient(batch))
    """

    local: LocalTraining
    """The settings of the training."""
    client: Client
    """The client that trains."""
    batches: Iterator[Examples]
    """The batches of all epochs or steps, in order; each can be used any number of times."""
    examples: Examples
    """The examples of which these are batches."""
    names: Sequence[str]
    """The names of the parameters that are trained."""
    values: Sequence[Tensor]
    """The live values of these parameters."""
    step: Step
    """Computes the losses and gradients of a batch."""
    optimizer: Optimizer
    """Takes the steps of `descend`."""
    adjust: Adjust | None = None
    """Changes gradients, if given."""
    losses: list[float] = field(default_factory=list)
    """The loss of each gradient so far."""

    @property
    def rate(self) -> float:
        """The learning rate of this round."""
        return self.local.rate(self.client.round, self.client.rounds)

    @property
    def point(self) -> Params:
        """A copy of the present values of the parameters."""
        pairs = zip(self.names, self.values, strict=True)
        return Params({n: v.clone(memory_format=torch.contiguous_format) for n, v in pairs})

    def move_to(self, point: Params) -> None:
        """Gives the parameters other values.

        Args:
            point: The values.
        """
        for name, value in zip(self.names, self.values, strict=True):
            value.copy_(point[name])

    def gradient(self, batch: Examples, at: Params | None = None) -> Params:
        """The gradient of the loss of a batch, adjusted and clipped as in any training.

        Args:
            batch: The batch.
            at: Where the gradient is taken; the parameters are moved there. By default, at their
                present values.

        Raises:
            Failure: If the loss is not finite.
        """
        if at is not None:
            self.move_to(at)
        use_running_statistics_for_one(self.client.model, batch)
        losses, grads = self.step(batch)
        if self.adjust is not None:
            grads = self.adjust(self.names, self.values, grads)
        if self.local.clip is not None:
            grads = clip_by_norm(grads, self.local.clip)
        loss = sum(loss.item() for loss in losses)
        self.losses.append(self.local.checked(loss, self.client.round))
        return Params(dict(zip(self.names, grads, strict=True)))

    def descend(self, gradient: Params) -> None:
        """Takes one step of the optimiser from the present values.

        Args:
            gradient: The direction, at the place of a gradient.
        """
        grads = [gradient[name] for name in self.names]
        self.optimizer.step(list(self.values), grads, self.rate)

    def draw(self) -> Examples:
        """Draws a batch at random, independently of `batches`."""
        order = torch.randperm(len(self.examples), generator=self.client.generator)
        return self.examples.take(order[: self.local.batch])


Loop = Callable[[Descent], None]
"""Trains a client in its own way: see `Descent`."""
