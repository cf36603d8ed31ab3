"""Data sets of images with dense (per-pixel) targets, read from files."""

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
    """Finds the folder of a data set.

    Args:
        name: The data set, for the error message.
        folder: The data folder.
        places: The accepted folders below it, in order of preference.
        files: What they should contain, for the error message.

    Returns:
        The first of the places that exists.

    Raises:
        UsageError: If none exists.
    """
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
    """Reads all images with their targets; tasks without any annotations are left out.

    Args:
        name: The name of the data set.
        names: The names of the images.
        read: Reads one image: `image`, and a target for each task.
        tasks: The possible tasks.

    Returns:
        The data set with the tasks that have annotations.
    """
    targets = gathered(names, read)
    inputs = targets.pop("image")
    annotated = [task for task in tasks if _varies(targets[task])]
    return Dataset(
        name=name,
        examples=Examples(inputs, {task: targets[task] for task in annotated}),
        tasks={task: tasks[task] for task in annotated},
        labels=np.zeros(len(names), dtype=np.int64),
        prepare=standardise,
    )


def _varies(targets: Tensor) -> bool:
    """Whether not all pixels of all images have the same target."""
    first = targets.flatten()[0]
    return any(bool((target != first).any()) for target in targets)
