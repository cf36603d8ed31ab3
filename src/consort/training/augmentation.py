"""Training examples made ready before every local training: balanced, and varied at random.

Plug-ins bring both by name, and tasks name those that suit them: a class of tasks with
`augmentation = "mine"` is augmented by what a plug-in's `augmentations` call "mine", and one with
`balancing = "mine"` is balanced by what its `balancings` call so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from torch import Generator

from consort.core.plugins import entries, find
from consort.data.examples import Examples
from consort.errors import UsageError
from consort.tasks import Task

Repeat = Literal["smaller", "larger", "any"]


class Augmentation(Protocol):
    """Varies examples at random."""

    def __call__(
        self, examples: Examples, tasks: Mapping[str, Task], generator: Generator
    ) -> Examples:
        """Called anew before every local training.

        Args:
            examples: A client's training examples, which must not be changed in place.
            tasks: The client's tasks, to vary targets along with inputs.
            generator: The client's randomness; nothing else may be drawn from.

        Returns:
            As many examples, in the same order.
        """
        ...


class Balancing(Protocol):
    """Repeats examples until kinds that matter to the tasks are equally frequent."""

    def __call__(
        self,
        examples: Examples,
        tasks: Mapping[str, Task],
        generator: Generator,
        repeat: Repeat,
    ) -> Examples:
        """Called anew before every local training, before the examples are varied.

        Args:
            examples: A client's training examples.
            tasks: The client's tasks.
            generator: The client's randomness; nothing else may be drawn from.
            repeat: Which examples are repeated: those of the smaller kind, or, to see what
                balance and not mere number is worth, as many of the larger kind or of any.
        """
        ...


def augmentation_of(tasks: Mapping[str, Task], chosen: bool | str) -> Augmentation:
    """The augmentation that `local.augment` asks for.

    Args:
        tasks: The tasks of a client.
        chosen: A name, or true for the tasks' own.

    Raises:
        UsageError: There is none of that name, or the tasks name none or several.
    """
    name = chosen if isinstance(chosen, str) else _own(tasks, "augmentation")
    if name is None:
        known = ", ".join(entries("augmentations"))
        raise UsageError(
            f"local.augment: the tasks {', '.join(tasks)} name no augmentation, or several: name "
            f"one here ({known}), or remove it"
        )
    found: Augmentation = find("augmentations", name)
    if not callable(found):
        raise UsageError(f"local.augment: {name} is not a function that varies examples")
    return found


def balancing_of(tasks: Mapping[str, Task]) -> Balancing:
    """The balancing that the tasks of a client name, for `local.balance`.

    Raises:
        UsageError: They name none, or several.
    """
    name = _own(tasks, "balancing")
    if name is None:
        raise UsageError(f"local.balance: the tasks {', '.join(tasks)} name no way: remove it")
    found: Balancing = find("balancings", name)
    return found


def _own(tasks: Mapping[str, Task], attribute: str) -> Any:
    """What the tasks name, if they name one; those that name none go along."""
    names = {getattr(task, attribute, None) for task in tasks.values()} - {None}
    return names.pop() if len(names) == 1 else None
