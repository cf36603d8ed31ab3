"""NYUD-v2 with four tasks, in the layout of ASTMT and its successors (Maninis et al. 2019)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from consort.data.dataset import Dataset
from consort.domains.scenes.dataset import dense_dataset, root_of
from consort.domains.scenes.files import (
    PICTURES,
    classes,
    found,
    listed,
    picture,
    strengths,
    values,
)
from consort.domains.scenes.frame import Frame, Sides, Values
from consort.domains.scenes.tasks.dense import IGNORED
from consort.domains.scenes.tasks.edges import Edges
from consort.domains.scenes.tasks.geometry import Depth, Normals
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.tasks import Task

FOLDERS = ("NYUD_MT", "NYUDv2")
CLASSES = 40
_LISTS = ("gt_sets/train.txt", "gt_sets/val.txt")
_SUFFIXES = (".png", ".npy", ".mat", ".jpg")


def nyud(folder: Path | None, *, size: Sides = (448, 576)) -> Dataset:
    """NYUD-v2: segments, normals, depth and edges of 1,449 rooms (Silberman et al. 2012).

    Args:
        folder: The data folder.
        size: Height and width of the images in pixels.

    Returns:
        The data set with those of its tasks that have annotations.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    root = root_of("nyud", folder, FOLDERS, "images/*.png")
    names = listed(*(root / name for name in _LISTS))

    def read(name: str) -> dict[str, Values]:
        image = picture(found(root / "images", name, ".jpg") or root / "images" / f"{name}.png")
        frame = Frame(size, image.shape[:2])
        return {
            "image": frame.image(image),
            "segment": _segments(root / "segmentation", name, frame),
            "normals": _normals(root / "normals", name, frame),
            "depth": _depths(root / "depth", name, frame),
            "edges": _edges(root / "edge", name, frame),
        }

    tasks: dict[str, Task] = {
        "segment": Segmentation(CLASSES),
        "normals": Normals(),
        "depth": Depth(),
        "edges": Edges(tolerance=0.011),
    }
    return dense_dataset("nyud", names, read, tasks)


def _segments(folder: Path, name: str, frame: Frame) -> Values:
    """The files number classes from 1; 0 is unlabelled."""
    path = found(folder, name, *_SUFFIXES)
    if path is None:
        return frame.nothing()
    labels = values(path, "segmentation").astype(np.int64)
    return frame.labels(classes(path, np.where(labels == 0, IGNORED, labels - 1), CLASSES))


def _normals(folder: Path, name: str, frame: Frame) -> Values:
    path = found(folder, name, *_SUFFIXES)
    if path is None:
        return frame.normals(np.zeros((1, 1, 3)))
    vectors = strengths(path, "normals", channels=3)
    return frame.normals(2 * vectors - 1 if path.suffix in PICTURES else vectors)


def _depths(folder: Path, name: str, frame: Frame) -> Values:
    path = found(folder, name, *_SUFFIXES)
    return frame.depths(values(path, "depth") if path else np.zeros((1, 1)))


def _edges(folder: Path, name: str, frame: Frame) -> Values:
    path = found(folder, name, *_SUFFIXES)
    return frame.lines(strengths(path, "edge") > 0.5) if path else frame.nothing()
