"""A client's signatures as it trains on them: balanced and varied, anew in every round."""

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
    """As many genuine signatures as forgeries of each user; a `Balancing`."""
    _refuse_others("local.balance", examples)
    users = claimed_user(examples.targets["identify"])
    genuine = examples.targets["detect"]
    return examples.take(balanced(users, genuine, generator, repeat))


def varied_signatures(
    examples: Examples,
    tasks: Mapping[str, Task],  # noqa: ARG001
    generator: Generator,
) -> Examples:
    """Every signature a little different; an `Augmentation`."""
    _refuse_others("local.augment", examples)
    return replace(examples, inputs=augmented(examples.inputs, generator))


def _refuse_others(key: str, examples: Examples) -> None:
    if not {"identify", "detect"} <= examples.targets.keys():
        raise UsageError(f"{key} is for signatures here: data with the tasks identify and detect")
