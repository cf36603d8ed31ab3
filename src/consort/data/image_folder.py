"""Image files in one folder per class."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from consort.core.bounds import LocalFile
from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.items import KEPT_BYTES
from consort.data.page import SUFFIXES
from consort.data.pictures import Mode, read_pictures
from consort.data.pixels import scale
from consort.data.unread import Unread
from consort.errors import UsageError
from consort.tasks import Classification

SIZE = 64
"""The default side of the images in pixels."""


def image_folder(
    folder: Path | None,
    *,
    path: LocalFile,
    size: Annotated[int, Field(ge=1)] = SIZE,
    mode: Mode = "RGB",
) -> Dataset:
    """Image files in one folder per class, resized to squares.

    Args:
        folder: The user's data folder, in which `path` is looked for first.
        path: The folder that contains one folder per class.
        size: The side of the squares in pixels.
        mode: RGB for colour, L for grey.

    Returns:
        The data set with the task `classify`; classes are in alphabetical order.

    Raises:
        UsageError: If there is no such folder, it has fewer than two folders, or one has no images.
    """
    below = folder / path if folder else Path(path)
    return images_of(below if below.is_dir() else Path(path), size, mode)


def images_of(path: Path, size: int = SIZE, mode: Mode = "RGB") -> Dataset:
    """The same for a folder that was found.

    Args:
        path: The folder that contains one folder per class.
        size: The side of the squares in pixels.
        mode: RGB for colour, L for grey.
    """
    if not path.is_dir():
        raise UsageError(f"image_folder: there is no folder {path}: give it as data.path")
    classes = sorted(entry for entry in path.iterdir() if entry.is_dir())
    if len(classes) < 2:
        raise UsageError(f"{path} has {len(classes)} folders: make one folder of images per class")
    files = [_pictures(folder) for folder in classes]
    labels = np.repeat(np.arange(len(files)), [len(some) for some in files])
    source = PictureFiles(list(chain.from_iterable(files)), size, mode)
    everything = torch.arange(len(labels))
    small = len(labels) * len(mode) * size * size <= KEPT_BYTES
    return Dataset(
        name="image_folder",
        examples=Examples(
            source.read(everything) if small else Unread(source, everything),
            {"classify": torch.from_numpy(labels)},
        ),
        tasks={"classify": Classification(len(classes))},
        labels=labels,
        prepare=scale,
    )


def _pictures(folder: Path) -> list[Path]:
    found = sorted(file for file in folder.iterdir() if file.suffix[1:].lower() in SUFFIXES)
    if not found:
        raise UsageError(
            f"{folder} has no image files ({', '.join(SUFFIXES)}): add some, or remove it"
        )
    return found


class PictureFiles:
    """Image files that are decoded when they are needed.

    Args:
        paths: The files.
        size: The side of the squares in pixels.
        mode: RGB for colour, L for grey.
    """

    def __init__(self, paths: Sequence[Path], size: int, mode: Mode) -> None:
        self._paths, self._size, self._mode = paths, size, mode

    def read(self, index: Tensor) -> Tensor:
        """The images at the positions `index`, as bytes."""
        chosen = [self._paths[place] for place in index.tolist()]
        return torch.from_numpy(read_pictures(chosen, self._size, self._mode))
