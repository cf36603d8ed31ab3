"""What one client learns: a loss, metrics, an output head."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor, nn


class Meter(Protocol):
    """Gathers batches of outputs and targets and turns them into metrics."""

    def update(self, output: Tensor, target: Tensor) -> None:
        """Takes one batch in."""
        ...

    def compute(self) -> dict[str, float]:
        """The metrics of everything taken in so far."""
        ...


@runtime_checkable
class Calibrated(Meter, Protocol):
    """A meter of test data that takes something, such as a threshold, from validation data."""

    def calibrate(self, validation: Meter) -> None:
        """Called before `compute`, with the meter of the validation data."""
        ...


@runtime_checkable
class Task(Protocol):
    """One thing a client learns.

    `metric` names the metric that stands for the task in tables and in the choice of the
    best round; `higher_is_better` says which way it points.
    """

    @property
    def metric(self) -> str:
        """The metric that stands for this task."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value of `metric` is better."""
        ...

    def head(self, features: int) -> nn.Module:
        """A new output head on top of so many features."""
        ...

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss of a batch, as a scalar."""
        ...

    def meter(self) -> Meter:
        """An empty meter for one evaluation."""
        ...


@runtime_checkable
class Imitated(Protocol):
    """A task some of whose examples imitate others, such as forgeries of a user's signature."""

    def imitation_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The mean loss of taking the imitations in a batch for what they imitate.

        Algorithms may add it to the task's loss.

        Args:
            output: What the head returned for the batch.
            target: The targets of the batch.
        """
        ...
