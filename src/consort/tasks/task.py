"""The protocols of tasks and their meters: a loss, metrics and an output head."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor, nn


class Meter(Protocol):
    """Accumulates batches of outputs and targets and computes metrics from them.

    Examples:
        >>> import torch
        >>> from consort import Classification, Meter
        >>> meter: Meter = Classification(2).meter()
        >>> meter.update(torch.tensor([[2.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 0]))
        >>> meter.compute()["accuracy"]
        0.5
    """

    def update(self, output: Tensor, target: Tensor) -> None:
        """Adds a batch.

        Args:
            output: The task's outputs of the model.
            target: The targets of the same examples.
        """
        ...

    def compute(self) -> dict[str, float]:
        """The metrics of all batches so far, by name."""
        ...


@runtime_checkable
class Calibrated(Meter, Protocol):
    """A meter for test data that takes something, such as a threshold, from validation data."""

    def calibrate(self, validation: Meter) -> None:
        """Adopts what was determined on validation data; called before `compute`.

        Args:
            validation: The meter that has seen the validation data.
        """
        ...


@runtime_checkable
class Task(Protocol):
    """A task that a client learns: the protocol of all tasks.

    Examples:
        A task of your own needs no base class.

        >>> from consort import Classification, Task
        >>> isinstance(Classification(10), Task)
        True
        >>> Classification(10).metric
        'accuracy'
    """

    @property
    def metric(self) -> str:
        """The metric that represents the task in tables and in the choice of the best round."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value of `metric` is better."""
        ...

    def head(self, features: int) -> nn.Module:
        """Builds a new output head.

        Args:
            features: The number of features that it receives.

        Returns:
            The module that computes the task's output from features.
        """
        ...

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Computes the mean loss of a batch.

        Args:
            output: The task's outputs of the model.
            target: The targets of the same examples.

        Returns:
            A scalar.
        """
        ...

    def meter(self) -> Meter:
        """A new, empty meter for one evaluation."""
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
