"""Fed-ISIC2019: skin lesions of eight classes from six centres (du Terrail et al. 2022)."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from consort.data.dataset import Dataset
from consort.data.folder import not_found
from consort.data.pictures import read_pictures
from consort.data.pixels import labelled_images
from consort.errors import Failure, UsageError

Lesion = tuple[str, int, int]
"""The image's name, its class and its centre."""

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")
CENTRES = (
    "BCN_nan",
    "HAM_vidir_molemax",
    "HAM_vidir_modern",
    "HAM_rosendahl",
    "MSK4nan",
    "HAM_vienna_dias",
)
"""Numbered as in FLamby, by size."""
FOLDER = "fed_isic2019"
TRUTH = "ISIC_2019_Training_GroundTruth.csv"
METADATA = "ISIC_2019_Training_Metadata_FL.csv"
SPLIT = "train_test_split"
IMAGES = ("ISIC_2019_Training_Input_preprocessed", "ISIC_2019_Training_Input")


def isic2019(folder: Path | None, *, size: Annotated[int, Field(ge=1)] = 224) -> Dataset:
    """Fed-ISIC2019 with its six centres as natural clients, from FLamby's files on disk.

    Args:
        folder: The data folder.
        size: The side of the resized images in pixels.

    Returns:
        The data set with the task `classify`; its owners are the centres.

    Raises:
        UsageError: If a file is not in the folder.
        Failure: If a file is damaged.
    """
    images = _images(folder)
    names, labels, centres = zip(*_lesions(images.parent), strict=True)
    pictures = read_pictures([images / f"{name}.jpg" for name in names], size, "RGB")
    owners = np.array(centres, dtype=np.int64)
    return labelled_images(
        "isic2019", pictures, np.array(labels, dtype=np.int64), len(CLASSES), owners
    )


def _images(folder: Path | None) -> Path:
    for path in (folder / FOLDER / name for name in IMAGES) if folder else ():
        if path.is_dir():
            return path
    layouts = tuple(f"{FOLDER}/{name}/*.jpg" for name in IMAGES)
    raise not_found("isic2019", folder, layouts, twin="synthetic_images")


def _lesions(folder: Path) -> list[Lesion]:
    """All lesions with a known centre, from FLamby's list of folds or from its other tables."""
    if (folder / SPLIT).is_file():
        return _of_folds(folder / SPLIT)
    return _of_download(folder / TRUTH, folder / METADATA)


def _of_folds(split: Path) -> list[Lesion]:
    classes, centres = ([str(number) for number in range(len(all_))] for all_ in (CLASSES, CENTRES))
    return [
        (
            image,
            _position(split, image, label, classes),
            _position(split, image, centre, centres),
        )
        for image, label, centre in _rows(split, "image", "target", "center")
    ]


def _of_download(truth: Path, metadata: Path) -> list[Lesion]:
    marked = {image: _marked(marks) for image, *marks in _rows(truth, "image", *CLASSES)}
    return [
        (
            image,
            _position(truth, image, marked.get(image, ""), CLASSES),
            _position(metadata, image, centre, CENTRES),
        )
        for image, centre in _rows(metadata, "image", "dataset")
    ]


def _marked(marks: list[str]) -> str:
    return " and ".join(name for name, mark in zip(CLASSES, marks, strict=True) if mark == "1.0")


def _position(path: Path, image: str, value: str, choices: Sequence[str]) -> int:
    if value not in choices:
        expected = ", ".join(choices)
        raise Failure(f"{path}: image {image} has {value!r} where one of {expected} is expected")
    return choices.index(value)


def _rows(path: Path, *columns: str) -> list[list[str]]:
    if not path.is_file():
        raise UsageError(f"{path} is missing: Fed-ISIC2019 has {TRUTH} and {METADATA}, or {SPLIT}")
    with path.open(encoding="utf-8", newline="") as file:
        try:
            rows = [[row[column] or "" for column in columns] for row in csv.DictReader(file)]
        except (KeyError, csv.Error, UnicodeDecodeError) as error:
            raise Failure(
                f"{path} is damaged: the columns {', '.join(columns)} are expected"
            ) from error
    if not rows:
        raise Failure(f"{path} is damaged: it lists no images")
    return rows
