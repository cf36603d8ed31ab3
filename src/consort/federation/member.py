"""One client of a federation: its tasks, its model and its data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from consort.core.inputs import Inputs
from consort.data.checks import check_splits
from consort.data.examples import Splits
from consort.data.sources import named_tasks
from consort.errors import UsageError
from consort.models.registry import ModelSpec
from consort.tasks import Task


@dataclass(frozen=True)
class AtHand:
    """Data that need not be loaded."""

    data: Splits
    """The data."""

    def __call__(self) -> Splits:
        """The data."""
        return self.data


@dataclass(frozen=True)
class Member:
    """One client of a federation: its tasks, its model and its data.

    Examples:
        >>> import torch
        >>> from consort import Classification, Examples, Member, ModelSpec, Splits
        >>> examples = Examples(torch.eye(4), {"place": torch.arange(4)})
        >>> splits = Splits(examples, examples, examples)
        >>> member = Member.of({"place": Classification(4)}, ModelSpec.of({"name": "mlp"}), splits)
        >>> member.example
        tensor([1., 0., 0., 0.])
    """

    tasks: Mapping[str, Task]
    """The tasks by name."""
    model: ModelSpec
    """The architecture of the model."""
    example: Inputs
    """One prepared input; only its shape and type matter."""
    load: Callable[[], Splits]
    """Loads the data; called when they are needed, and again if they were released."""
    companion: ModelSpec | None = None
    """A second model for the same tasks and inputs: see `Algorithm.companion`."""
    local: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the local training of every algorithm, for this client."""
    examples: int | None = None
    """The number of training examples, if it is known before they are loaded."""

    @classmethod
    def of(cls, tasks: Mapping[str, Task] | Task, model: Any, data: Any) -> Member:
        """A member whose data are at hand.

        Args:
            tasks: The tasks by name, or the only task.
            model: The architecture of the model: a `ModelSpec`, or what `ModelSpec.of` takes, such
                as an `nn.Module` or its class.
            data: `Splits`, or what `Splits.of` takes, such as a torch `Dataset`. A single target
                gets the name of the only task.

        Raises:
            UsageError: If the model is none, or the data do not have what the tasks need.
        """
        named = named_tasks(tasks)
        splits = Splits.of(data, tuple(named))
        if not len(splits.train):
            raise UsageError("a client needs at least one training example")
        return cls(named, ModelSpec.of(model), splits.train.example, AtHand(splits))

    def check(self) -> None:
        """Checks data that are at hand; once, however many runs there are.

        Raises:
            UsageError: If they cannot be trained on.
        """
        if self._problem:
            raise UsageError(self._problem)

    @cached_property
    def _problem(self) -> str:
        if not isinstance(self.load, AtHand):
            return ""
        try:
            check_splits(self.load(), self.tasks)
        except UsageError as error:
            return str(error)
        return ""

    @cached_property
    def architecture(self) -> Hashable:
        """A key that is equal for members whose models have the same architecture."""
        return self.model, self.companion, tuple(self.tasks.items()), _shape(self.example)


def _shape(example: Inputs) -> Hashable:
    if isinstance(example, Tensor):
        return example.shape
    return tuple((name, tensor.shape) for name, tensor in example.items())
