"""Data sets of images with answers for every pixel, read from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.folder import not_found
from consort.data.pixels import standardise
from consort.domains.scenes.files import gathered
from consort.domains.scenes.frame import Values
from consort.tasks import Task


def root_of(name: str, folder: Path | None, places: Sequence[str], files: str) -> Path:
    """The first of some places in the data folder that is there."""
    for place in places if folder else ():
        if folder and (folder / place).is_dir():
            return folder / place
    layouts = tuple(f"{place}/{files}" for place in places)
    raise not_found(name, folder, layouts, twin="synthetic_scenes")


def dense_dataset(
    name: str,
    names: Sequence[str],
    read: Callable[[str], dict[str, Values]],
    tasks: Mapping[str, Task],
) -> Dataset:
    """All images with their targets; a task that no image has labels of is left out."""
    targets = gathered(names, read)
    inputs = targets.pop("image")
    taught = [task for task in tasks if _tells_something(targets[task])]
    return Dataset(
        name=name,
        examples=Examples(inputs, {task: targets[task] for task in taught}),
        tasks={task: tasks[task] for task in taught},
        labels=np.zeros(len(names), dtype=np.int64),
        prepare=standardise,
    )


def _tells_something(targets: Tensor) -> bool:
    """Whether not all pixels of all images have one and the same answer."""
    first = targets.flatten()[0]
    return any(bool((target != first).any()) for target in targets)
