"""TinyImageNet: 64x64 colour images of 200 classes (Le and Yang 2015)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consort.data.dataset import Dataset
from consort.data.folder import not_found
from consort.data.pictures import labelled_files, read_pictures
from consort.data.pixels import labelled_images
from consort.errors import Failure

CLASSES = "tiny-imagenet-200/wnids.txt"
ANNOTATIONS = "tiny-imagenet-200/val/val_annotations.txt"
SIZE = 64


def tinyimagenet(folder: Path | None) -> Dataset:
    """TinyImageNet, training and validation images pooled, from `tiny-imagenet-200` on disk.

    Args:
        folder: The data folder.

    Returns:
        The data set with the task `classify`.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    if not folder or not all((folder / part).is_file() for part in (CLASSES, ANNOTATIONS)):
        layouts = (f"{CLASSES} beside {ANNOTATIONS}",)
        raise not_found("tinyimagenet", folder, layouts, twin="synthetic_images")
    names = _text(folder / CLASSES).split()
    if len(names) < 2:
        raise Failure(f"{folder / CLASSES} is damaged: the names of classes are expected")
    training = (folder / CLASSES).with_name("train")
    files, labels = labelled_files([training / name / "images" for name in names], "*.JPEG")
    more_files, more_labels = _annotated(folder / ANNOTATIONS, names)
    images = read_pictures(files + more_files, SIZE, "RGB")
    pooled = np.concatenate([labels, more_labels])
    return labelled_images("tinyimagenet", images, pooled, len(names))


def _annotated(path: Path, names: list[str]) -> tuple[list[Path], NDArray[np.int64]]:
    """The validation images and their classes; a line has file, class and bounding box."""
    numbers = {name: number for number, name in enumerate(names)}
    lines = [line.split() for line in _text(path).splitlines()]
    for number, line in enumerate(lines, 1):
        if len(line) < 2 or line[1] not in numbers:
            raise Failure(f"{path}, line {number}: a file and a class of wnids.txt are expected")
    files = [path.with_name("images") / line[0] for line in lines]
    return files, np.array([numbers[line[1]] for line in lines], dtype=np.int64)


def _text(path: Path) -> str:
    """Invalid bytes become replacement characters, which no class name contains."""
    return path.read_text(encoding="utf-8", errors="replace")
