"""Chest X-rays: COVID-19, lung opacity, normal, viral pneumonia (Chowdhury et al. 2020)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from consort.data.dataset import Dataset
from consort.data.folder import not_found, read_arrays
from consort.data.pictures import labelled_files, read_pictures, resized
from consort.data.pixels import labelled_images
from consort.data.repeats import first_of_each
from consort.errors import Failure

CLASSES = ("COVID", "Lung_Opacity", "Normal", "Viral Pneumonia")
PUBLISHED = "COVID-19_Radiography_Dataset"
REDUCED = "medical/covid_radiography_64.npz"


def chest_xray(folder: Path | None, *, size: Annotated[int, Field(ge=1)] = 64) -> Dataset:
    """Chest X-rays of four classes, without duplicates, from `COVID-19_Radiography_Dataset`.

    The files contain some X-rays several times; without removing them any split would leak.

    Args:
        folder: The data folder.
        size: The side of the resized images in pixels.

    Returns:
        The data set with the task `classify`.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    if folder and (folder / PUBLISHED).is_dir():
        folders = [folder / PUBLISHED / name / "images" for name in CLASSES]
        files, labels = labelled_files(folders, "*.png")
        images = read_pictures(files, size, "L")
    elif folder and (folder / REDUCED).is_file():
        images, labels = _reduced(folder / REDUCED, size)
    else:
        layouts = (f"{PUBLISHED}/<class>/images/*.png", REDUCED)
        raise not_found("chest_xray", folder, layouts, twin="synthetic_images")
    new = first_of_each(images)
    return labelled_images("chest_xray", images[new], labels[new], len(CLASSES))


def _reduced(path: Path, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    images, labels, classes = read_arrays(path, "x", "y", "classes")
    if tuple(classes) != CLASSES:
        raise Failure(f"{path} must have the classes {', '.join(CLASSES)}, in this order")
    return resized(images[:, None], size), labels.astype(np.int64)
