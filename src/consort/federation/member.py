"""One client: what it learns, with which model, from which data."""

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
    """One client: what it learns, with which model, from which data."""

    tasks: Mapping[str, Task]
    model: ModelSpec
    example: Tensor
    """One input as the model sees it; only its shape and type matter."""
    load: Callable[[], Splits]
    """Brings the data into memory; called when needed, and again if room had to be made."""
    companion: ModelSpec | None = None
    """Another model for the same tasks and inputs, which is trained beside the own one."""
    local: Mapping[str, Any] = field(default_factory=dict)
    """What is different about its local training, whatever the algorithm."""

    @classmethod
    def of(cls, tasks: Mapping[str, Task], model: ModelSpec, data: Splits) -> Member:
        """A member whose data are already in memory."""
        return cls(tasks, model, data.train.inputs[0], lambda: data)

    @cached_property
    def architecture(self) -> Hashable:
        """Equal for members whose models have the same shape."""
        return self.model, self.companion, tuple(self.tasks.items()), self.example.shape
