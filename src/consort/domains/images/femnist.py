"""FEMNIST: handwritten characters with their writers (Caldas et al. 2018)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consort.data.dataset import Dataset
from consort.data.folder import not_found, read_arrays
from consort.data.pixels import labelled_images
from consort.errors import Failure

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

CLASSES = 62
PUBLISHED = "femnist/data"
REDUCED = "images/femnist_digits_12clients.npz"


def femnist(folder: Path | None) -> Dataset:
    """FEMNIST with its writers as natural clients, from LEAF's JSON files on disk.

    Args:
        folder: The data folder.

    Returns:
        The data set with the task `classify`; its owners are the writers.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    if folder and (files := _files(folder / PUBLISHED)):
        images, labels, owners = _published(files)
        classes = CLASSES
    elif folder and (folder / REDUCED).is_file():
        images, labels, owners = _reduced(folder / REDUCED)
        classes = 10
    else:
        layouts = (f"{PUBLISHED}/{{train,test}}/*.json", REDUCED)
        raise not_found("femnist", folder, layouts, twin="synthetic_writers")
    return labelled_images("femnist", images, labels, classes, owners)


def _files(folder: Path) -> list[Path]:
    return [file for part in ("train", "test") for file in sorted((folder / part).glob("*.json"))]


def _published(files: list[Path]) -> tuple[Bytes, Numbers, Numbers]:
    parts = [part for file in files for part in _writers(file)]
    names = {name: owner for owner, name in enumerate(sorted({name for name, _, _ in parts}))}
    owners = np.repeat([names[name] for name, _, _ in parts], [len(part[2]) for part in parts])
    images = np.concatenate([images for _, images, _ in parts])
    return images, np.concatenate([labels for _, _, labels in parts]), owners.astype(np.int64)


def _writers(file: Path) -> list[tuple[str, Bytes, Numbers]]:
    try:
        writers = json.loads(file.read_text(encoding="utf-8"))["user_data"]
        return [(name, *_images_and_labels(data)) for name, data in writers.items()]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(
            f"{file} is damaged: LEAF's user_data is expected, with as many rows in x (784 "
            f"values from 0 to 1) as labels in y (0 to {CLASSES - 1})"
        ) from error


def _images_and_labels(data: dict[str, Any]) -> tuple[Bytes, Numbers]:
    values, labels = np.array(data["x"], dtype=float), np.array(data["y"], dtype=np.int64)
    images = np.rint(values.reshape(len(labels), 1, 28, 28) * 255)
    if not ((images >= 0) & (images <= 255)).all() or not set(labels) <= set(range(CLASSES)):
        raise ValueError
    return images.astype(np.uint8), labels


def _reduced(path: Path) -> tuple[Bytes, Numbers, Numbers]:
    images, labels, owners = read_arrays(path, "x", "y", "client")
    return images[:, None], labels.astype(np.int64), owners.astype(np.int64)
