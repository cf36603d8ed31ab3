"""Kvasir: endoscopic images of the digestive tract, in eight classes (Pogorelov et al. 2017)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from consort.data.dataset import Dataset
from consort.data.folder import not_found
from consort.data.pictures import labelled_files, read_pictures
from consort.data.pixels import labelled_images

FOLDER = "kvasir-dataset-v2"
CLASSES = (
    "dyed-lifted-polyps",
    "dyed-resection-margins",
    "esophagitis",
    "normal-cecum",
    "normal-pylorus",
    "normal-z-line",
    "polyps",
    "ulcerative-colitis",
)


def kvasir(folder: Path | None, *, size: Annotated[int, Field(ge=1)] = 64) -> Dataset:
    """Kvasir v2, endoscopic images of eight classes, from `kvasir-dataset-v2` on disk.

    Args:
        folder: The data folder.
        size: The side of the resized images in pixels.

    Returns:
        The data set with the task `classify`.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    if not folder or not (folder / FOLDER).is_dir():
        raise not_found("kvasir", folder, (f"{FOLDER}/<class>/*.jpg",), twin="synthetic_images")
    files, labels = labelled_files([folder / FOLDER / name for name in CLASSES], "*.jpg")
    return labelled_images("kvasir", read_pictures(files, size, "RGB"), labels, len(CLASSES))
