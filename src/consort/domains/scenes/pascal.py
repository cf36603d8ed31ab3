"""PASCAL-Context with five tasks, in the layout of ASTMT (Maninis et al. 2019)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from consort.data.dataset import Dataset
from consort.domains.scenes.dataset import dense_dataset, root_of
from consort.domains.scenes.files import classes, found, listed, matlab, picture, strengths, values
from consort.domains.scenes.frame import Frame, Sides, Values
from consort.domains.scenes.tasks.edges import Edges
from consort.domains.scenes.tasks.geometry import Normals
from consort.domains.scenes.tasks.segmentation import Saliency, Segmentation
from consort.errors import Failure
from consort.tasks import Task

FOLDERS = ("PASCAL_MT", "PASCALContext")
CLASSES = 21
PERSON = 15
PARTS = (
    "head hair lear rear lebrow rebrow leye reye nose mouth",
    "torso neck",
    "luarm ruarm",
    "llarm rlarm lhand rhand",
    "luleg ruleg",
    "llleg rlleg lfoot rfoot",
)
"""The names in the MATLAB files that make up parts 1 to 6; 0 is everything else."""
_PART = {name: number for number, names in enumerate(PARTS, 1) for name in names.split()}

_SHARED = """
3 4 6 9 10 11 13 15 17 18 22 23 29 30 33 34 36 37 38 39 41 43 46 49 50 51 53 55 56 59 61 62 65 66
68 69 72 73 78 83 84 85 87 88 95 96 101 104 105 107 111 113 115 122 124 135 141 142 143 146 150
154 157 158 159 165 172 174 181 183 184 191 193 195 197 199 202 213 215 216 219 220 223 225 228
230 232 233 238 239 242 243 246 250 251 252 255 260 261 263 269 272 273 275 281 283 284 285 286
287 288 290 291 292 293 295 304 307 309 310 314 315 319 323 329 330 331 336 342 345 349 350 351
352 355 357 368 370 371 374 379 380 383 384 397 401 403 405 407 408 411 412 413 414 417 419 421
423 427 429 430 432 440 441 442 443 444 446 454 457
"""
SHARED_WITH_NYU = np.array(_SHARED.split(), dtype=np.int64)
"""Those of the 459 classes that NYUD also has: normals come from a network trained on NYUD."""

_LISTS = {
    "context": ("ImageSets/Context/train.txt", "ImageSets/Context/val.txt"),
    "voc_aug": ("ImageSets/Segmentation/trainaug.txt", "ImageSets/Segmentation/val.txt"),
}
_SEGMENTS = ("semseg/VOC12", "semseg/pascal-context", "SegmentationClassAug")


def pascal_context(
    folder: Path | None,
    *,
    size: Sides = (512, 512),
    split: Literal["context", "voc_aug"] = "context",
) -> Dataset:
    """PASCAL-Context: segments, human parts, saliency, normals and edges of 10,103 images.

    Args:
        folder: The data folder.
        size: Height and width of the images in pixels.
        split: The list of images: PASCAL-Context's, or the augmented one of PASCAL VOC.

    Returns:
        The data set with those of its tasks that have annotations.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    root = root_of("pascal_context", folder, FOLDERS, "JPEGImages/*.jpg")
    names = listed(*(root / name for name in _LISTS[split]))

    def read(name: str) -> dict[str, Values]:
        image = picture(root / "JPEGImages" / f"{name}.jpg")
        frame = Frame(size, image.shape[:2])
        return {
            "image": frame.image(image),
            "segment": _segments(root, name, frame),
            "parts": _parts(root / "human_parts", name, frame),
            "saliency": _saliency(root / "sal_distill", name, frame),
            "normals": _normals(root, name, frame),
            "edges": _edges(root, name, frame),
        }

    tasks: dict[str, Task] = {
        "segment": Segmentation(CLASSES),
        "parts": Segmentation(len(PARTS) + 1),
        "saliency": Saliency(),
        "normals": Normals(),
        "edges": Edges(),
    }
    return dense_dataset("pascal_context", names, read, tasks)


def _segments(root: Path, name: str, frame: Frame) -> Values:
    for place in _SEGMENTS:
        if path := found(root / place, name, ".png"):
            return frame.labels(classes(path, values(path), CLASSES))
    return frame.nothing()


def _parts(folder: Path, name: str, frame: Frame) -> Values:
    """An image without any annotated part is ignored as a whole."""
    path = found(folder, name, ".mat")
    target = np.zeros(frame.shape, dtype=np.uint8)
    try:
        for part in _parts_of_people(path) if path else ():
            target[np.nonzero(part["mask"])] = _PART[part["part_name"]]
    except (KeyError, IndexError, TypeError) as error:
        raise Failure(
            f"{path} is damaged: people as in PASCAL-Part are expected ({error!r})"
        ) from error
    return frame.labels(target) if target.any() else frame.nothing()


def _parts_of_people(path: Path) -> list[Any]:
    things = _each(matlab(path, "anno")["objects"])
    return [
        part for thing in things if thing["class_ind"] == PERSON for part in _each(thing["parts"])
    ]


def _saliency(folder: Path, name: str, frame: Frame) -> Values:
    path = found(folder, name, ".png")
    return frame.labels(strengths(path) > 0.5) if path else frame.nothing()


def _normals(root: Path, name: str, frame: Frame) -> Values:
    path, areas = found(root / "normals_distill", name, ".png"), _areas(root, name)
    if path is None or areas is None:
        return frame.normals(np.zeros((1, 1, 3)))
    known = np.isin(areas, SHARED_WITH_NYU)[..., None]
    return frame.normals(np.where(known, 2 * strengths(path, channels=3) - 1, 0))


def _edges(root: Path, name: str, frame: Frame) -> Values:
    areas = _areas(root, name)
    return frame.nothing() if areas is None else frame.borders(areas)


def _areas(root: Path, name: str) -> Values | None:
    """The class of every pixel, one of 459."""
    path = found(root / "pascal-context/trainval", name, ".mat")
    return values(path, "LabelMap") if path else None


def _each(structures: Any) -> list[Any]:
    """Always a list: MATLAB does not distinguish a structure from a list of one."""
    return [structures] if isinstance(structures, dict) else list(structures)
