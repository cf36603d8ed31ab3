"""Examples from what users have: arrays, tables, torch data sets, files and folders."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.core.registry import did_you_mean
from consort.data.columns import (
    TARGET,
    as_target,
    as_tensor,
    columns_of,
    from_columns,
    read_columns,
)
from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.image_folder import images_of
from consort.data.items import from_items
from consort.errors import UsageError
from consort.tasks import Classification, Task


def examples_of(data: Any, targets: str | Sequence[str] = ()) -> Examples:
    """Examples from almost any data: see `Examples.of`.

    Args:
        data: The data.
        targets: The columns that are targets.

    Raises:
        UsageError: If the data are of another kind, or have no targets.
    """
    names = (targets,) if isinstance(targets, str) else tuple(targets)
    if isinstance(data, Examples):
        return data
    if isinstance(data, Dataset):
        return data.examples.changed(data.prepare)
    if isinstance(data, str | Path):
        return _from_path(Path(data), names)
    if isinstance(data, tuple) and len(data) == 2:
        return _pair(*data)
    columns = columns_of(data)
    if columns is not None:
        return from_columns(columns, names)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return from_items(data, names)
    raise UsageError(
        f"a {type(data).__name__} is no data: give a pair of inputs and targets, a data frame, or "
        "a torch Dataset with a length"
    )


def dataset_from(
    data: Any, tasks: Mapping[str, Task] | Task | None, targets: str | Sequence[str], name: str
) -> Dataset:
    """A data set made of almost any data: see `Dataset.of`."""
    if isinstance(data, Dataset):
        return data
    given = None if tasks is None else named_tasks(tasks)
    found = examples_of(data, targets) if targets or given is None else preferring(data, [*given])
    examples = found if given is None else for_tasks(found, [*given])
    known = given or {task: _task_of(task, values) for task, values in examples.targets.items()}
    return Dataset(name, examples, dict(known), labels_of(examples))


def named_tasks(tasks: Mapping[str, Task] | Task) -> Mapping[str, Task]:
    """Tasks by name; a single task has the name of a single target."""
    return tasks if isinstance(tasks, Mapping) else {TARGET: tasks}


def for_tasks(examples: Examples, tasks: Sequence[str]) -> Examples:
    """Examples with the targets of some tasks; a single target without a name gets that of a task.

    Args:
        examples: The examples.
        tasks: The names of the tasks.

    Raises:
        UsageError: If a task has no targets.
    """
    if list(examples.targets) == [TARGET] and len(tasks) == 1:
        return Examples(examples.inputs, {tasks[0]: examples.targets[TARGET]})
    for task in tasks:
        if task not in examples.targets:
            raise UsageError(
                f"the data have no targets for task {did_you_mean(task, examples.targets)}"
            )
    return examples.only(tasks)


def labels_of(examples: Examples) -> NDArray[np.int64]:
    """The first targets that are one whole number per example; zeros if there are none."""
    for target in examples.targets.values():
        if target.ndim == 1 and not target.is_floating_point():
            return target.to(torch.int64).numpy()
    return np.zeros(len(examples), dtype=np.int64)


def _task_of(name: str, target: Tensor) -> Task:
    if target.ndim != 1 or target.is_floating_point() or not len(target):
        raise UsageError(
            f"the targets {name!r} are no classes: say what the task is, such as tasks = "
            "Supervised(loss, outputs = 1)"
        )
    least, most = int(target.min()), int(target.max())
    if least:
        raise UsageError(
            f"the targets {name!r} are {least} to {most}, but classes are numbered from 0: "
            f"subtract {least} from them, or say what the task is"
        )
    return Classification(max(most + 1, 2))


def preferring(data: Any, tasks: Sequence[str]) -> Examples:
    """Examples whose targets are the columns named after tasks, if all tasks have such a column.

    Args:
        data: The data.
        tasks: The names of the tasks.
    """
    known = () if isinstance(data, Examples | Dataset | tuple) else _names(data)
    return examples_of(data, tasks if all(task in known for task in tasks) else ())


def _names(data: Any) -> Collection[str]:
    """The names of the columns of data, or of the entries of their items."""
    if isinstance(data, str | Path):
        path = Path(data)
        return () if path.is_dir() else read_columns(path)
    columns = columns_of(data)
    if columns is None and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        first = data[0] if len(data) else None
        return tuple(first) if isinstance(first, Mapping) else ()
    return columns or ()


def _pair(inputs: Any, targets: Any) -> Examples:
    named = targets if isinstance(targets, Mapping) else {TARGET: targets}
    several = columns_of(inputs)
    return Examples(
        as_tensor(inputs, "the inputs") if several is None else _matrix(several),
        {name: as_target(values, f"the targets of {name!r}") for name, values in named.items()},
    )


def _matrix(columns: Mapping[str, Any]) -> Any:
    """The inputs of a table without targets."""
    count = len(next(iter(columns.values())))
    return from_columns({**columns, TARGET: [0] * count}, (TARGET,)).inputs


def _from_path(path: Path, targets: Sequence[str]) -> Examples:
    if path.is_dir():
        return examples_of(images_of(path))
    return from_columns(read_columns(path), targets)
