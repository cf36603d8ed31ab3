"""Balancing and augmentation of training examples, done anew before every local training.

Plug-ins provide both under names, and tasks name the ones that suit them: a task class with
`augmentation = "mine"` uses the entry "mine" in a plug-in's `augmentations`, and one with
`balancing = "mine"` the entry "mine" in its `balancings`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from torch import Generator

from consort.core.plugins import entries, find
from consort.data.examples import Examples
from consort.errors import UsageError
from consort.tasks import Task

Repeat = Literal["smaller", "larger", "any"]
"""Which examples a balancing repeats: see `Balancing`."""


class Augmentation(Protocol):
    """Changes examples at random."""

    def __call__(
        self, examples: Examples, tasks: Mapping[str, Task], generator: Generator
    ) -> Examples:
        """Augments examples; called anew before every local training.

        Args:
            examples: A client's training examples, which must not be changed in place.
            tasks: The client's tasks, to change targets along with inputs.
            generator: The client's generator, the only permitted source of randomness.

        Returns:
            As many examples, in the same order.
        """
        ...


class Balancing(Protocol):
    """Repeats examples until the classes that matter to the tasks are equally frequent."""

    def __call__(
        self,
        examples: Examples,
        tasks: Mapping[str, Task],
        generator: Generator,
        repeat: Repeat,
    ) -> Examples:
        """Balances examples; called anew before every local training, before augmentation.

        Args:
            examples: A client's training examples.
            tasks: The client's tasks.
            generator: The client's generator, the only permitted source of randomness.
            repeat: Which examples are repeated: those of the smaller class. `larger` and `any`
                repeat as many examples without balancing: controls that separate the effect of
                balance from that of number.

        Returns:
            The examples, followed by the repeated ones.
        """
        ...


def augmentation_of(tasks: Mapping[str, Task], chosen: bool | str) -> Augmentation:
    """Finds the augmentation that `local.augment` asks for.

    Args:
        tasks: The tasks of a client.
        chosen: The name of an augmentation, or true for the one that the tasks name.

    Returns:
        The augmentation.

    Raises:
        UsageError: If there is no augmentation of that name, or the tasks name none or several.
    """
    name = chosen if isinstance(chosen, str) else _named_by(tasks, "augmentation")
    if name is None:
        known = ", ".join(entries("augmentations"))
        raise UsageError(
            f"local.augment: the tasks {', '.join(tasks)} name no augmentation, or several: set "
            f"local.augment to one of {known}, or remove it"
        )
    found: Augmentation = find("augmentations", name)
    if not callable(found):
        raise UsageError(f"local.augment: {name} is not a function that augments examples")
    return found


def transform_of(transform: str | Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Finds the function that `local.transform` names.

    Args:
        transform: The function, or its place, such as `file.py:function`.

    Raises:
        UsageError: If there is no such function.
    """
    if isinstance(transform, str) and ":" not in transform:
        raise UsageError(
            f"local.transform = {transform!r} is not the place of a function, such as "
            "'file.py:function'"
        )
    found = find("transforms", transform) if isinstance(transform, str) else transform
    if not callable(found):
        raise UsageError(f"local.transform: {transform} is not a function of a batch of inputs")
    function: Callable[[Any], Any] = found
    return function


def balancing_of(tasks: Mapping[str, Task]) -> Balancing:
    """Finds the balancing that the tasks name, for `local.balance`.

    Args:
        tasks: The tasks of a client.

    Returns:
        The balancing.

    Raises:
        UsageError: If the tasks name no balancing, or several.
    """
    name = _named_by(tasks, "balancing")
    if name is None:
        raise UsageError(
            f"local.balance: the tasks {', '.join(tasks)} name no balancing, or several: remove "
            "local.balance"
        )
    found: Balancing = find("balancings", name)
    return found


def _named_by(tasks: Mapping[str, Task], attribute: str) -> Any:
    """The name in an attribute of the tasks, if all tasks that have one agree; else None."""
    names = {getattr(task, attribute, None) for task in tasks.values()} - {None}
    return names.pop() if len(names) == 1 else None
