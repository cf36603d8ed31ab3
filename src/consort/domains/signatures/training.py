"""Balancing and augmentation of a client's signatures, anew in every round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Generator

from consort.data.examples import Examples
from consort.domains.signatures.augment import augmented
from consort.domains.signatures.balance import balanced
from consort.domains.signatures.tasks import claimed_user
from consort.errors import UsageError
from consort.tasks import Task
from consort.training.augmentation import Repeat


def balanced_signatures(
    examples: Examples,
    tasks: Mapping[str, Task],  # noqa: ARG001
    generator: Generator,
    repeat: Repeat = "smaller",
) -> Examples:
    """Repeats signatures until every user has as many genuine ones as forgeries; a `Balancing`.

    Args:
        examples: A client's signatures.
        tasks: The client's tasks, which are not used.
        generator: The source of randomness.
        repeat: Which signatures are repeated: see `consort.domains.signatures.balance.balanced`.

    Returns:
        The signatures, followed by the repeated ones.

    Raises:
        UsageError: If the examples are not signatures.
    """
    _refuse_others("local.balance", examples)
    users = claimed_user(examples.targets["identify"])
    genuine = examples.targets["detect"]
    return examples.take(balanced(users, genuine, generator, repeat))


def varied_signatures(
    examples: Examples,
    tasks: Mapping[str, Task],  # noqa: ARG001
    generator: Generator,
) -> Examples:
    """Applies a random transform to every signature; an `Augmentation`.

    Args:
        examples: A client's signatures, which are not changed.
        tasks: The client's tasks, which are not used.
        generator: The source of randomness.

    Returns:
        The transformed signatures.

    Raises:
        UsageError: If the examples are not signatures.
    """
    _refuse_others("local.augment", examples)
    return replace(examples, inputs=augmented(examples.tensor, generator))


def _refuse_others(key: str, examples: Examples) -> None:
    if not {"identify", "detect"} <= examples.targets.keys():
        raise UsageError(
            f"{key} needs signatures here, that is data with the tasks identify and detect: remove "
            "it, or choose other data"
        )
