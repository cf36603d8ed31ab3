"""One client of a federation: its tasks, its model and its data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from consort.data.examples import Splits
from consort.models.registry import ModelSpec
from consort.tasks import Task


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
    example: Tensor
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
    def of(cls, tasks: Mapping[str, Task], model: ModelSpec, data: Splits) -> Member:
        """A member whose data are in memory.

        Args:
            tasks: The tasks by name.
            model: The architecture of the model.
            data: The data.
        """
        return cls(tasks, model, data.train.inputs[0], lambda: data)

    @cached_property
    def architecture(self) -> Hashable:
        """A key that is equal for members whose models have the same architecture."""
        return self.model, self.companion, tuple(self.tasks.items()), self.example.shape
