"""Examples that cannot be trained on, found before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from consort.core.inputs import Inputs, kind_of
from consort.data.examples import Examples, Splits
from consort.data.unread import Unread
from consort.errors import UsageError
from consort.tasks import Task

_NAMES = ("training", "validation", "test")


def check_splits(splits: Splits, tasks: Mapping[str, Task]) -> None:
    """Checks the data of a client.

    Args:
        splits: The data.
        tasks: The client's tasks.

    Raises:
        UsageError: If inputs are not finite, splits differ in shape, or targets do not suit a task.
    """
    expected = kind_of(splits.train.example) if len(splits.train) else ""
    for name, examples in zip(_NAMES, splits.parts[:3], strict=True):
        if not len(examples):
            continue
        found = kind_of(examples.example)
        if found != expected:
            raise UsageError(
                f"its {name} inputs have shape {found}, and its training inputs {expected}: give "
                "all splits the same shape"
            )
        check_examples(examples, tasks, f"its {name} inputs")


def check_examples(examples: Examples, tasks: Mapping[str, Task], inputs: str) -> None:
    """Checks that inputs are finite and that targets suit their tasks.

    Args:
        examples: The examples; inputs that are not read yet are not checked.
        tasks: The tasks.
        inputs: What the inputs are called in messages.

    Raises:
        UsageError: If they cannot be trained on.
    """
    if not isinstance(examples.inputs, Unread):
        _check_finite(examples.inputs, inputs)
    for name, task in tasks.items():
        check = getattr(task, "check", None)
        if check is None or name not in examples.targets:
            continue
        try:
            check(examples.targets[name])
        except UsageError as error:
            raise UsageError(f"task {name!r}: {error}") from error


def _check_finite(inputs: Inputs, what: str) -> None:
    named = {"": inputs} if isinstance(inputs, torch.Tensor) else inputs
    for name, tensor in named.items():
        if not tensor.is_floating_point() or bool(torch.isfinite(tensor.sum())):
            continue
        wrong = (
            (~torch.isfinite(tensor)).flatten(1).any(1)
            if tensor.ndim > 1
            else (~torch.isfinite(tensor))
        )
        places = wrong.nonzero().flatten().tolist()
        if places:
            where = f" of {name!r}" if name else ""
            raise UsageError(
                f"{what}{where} are not finite (NaN or infinite) in {len(places)} of {len(tensor)} "
                f"examples, first in example {places[0]}: repair or remove these examples"
            )
