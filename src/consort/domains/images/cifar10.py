"""CIFAR-10: 32x32 colour images of ten classes (Krizhevsky 2009)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from consort.data.dataset import Dataset
from consort.data.folder import not_found, read_arrays, read_records
from consort.data.pixels import labelled_images
from consort.errors import UsageError

Bytes = NDArray[np.uint8]

BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
PUBLISHED = "cifar-10-batches-bin"
REDUCED = "images/cifar10_7500.npz"


def cifar10(folder: Path | None) -> Dataset:
    """CIFAR-10, training and test images pooled, from `cifar-10-batches-bin` on disk.

    Args:
        folder: The data folder.

    Returns:
        The data set with the task `classify`.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    if folder and (folder / PUBLISHED).is_dir():
        images, labels = _published(folder / PUBLISHED)
    elif folder and (folder / REDUCED).is_file():
        images, labels = _reduced(folder / REDUCED)
    else:
        layouts = (f"{PUBLISHED}/*.bin", REDUCED)
        raise not_found("cifar10", folder, layouts, twin="synthetic_images")
    return labelled_images("cifar10", images, labels.astype(np.int64), classes=10)


def _published(folder: Path) -> tuple[Bytes, Bytes]:
    records = np.concatenate([_records(folder / batch) for batch in BATCHES])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _records(path: Path) -> Bytes:
    if not path.is_file():
        raise UsageError(f"{path} is missing: CIFAR-10 has {', '.join(BATCHES)}")
    return read_records(path, classes=(10,), pixels=3 * 32 * 32)


def _reduced(path: Path) -> tuple[Bytes, Bytes]:
    images, labels, more_images, more_labels = read_arrays(
        path, "x_train", "y_train", "x_test", "y_test"
    )
    pooled = np.concatenate([images, more_images]).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(pooled), np.concatenate([labels, more_labels])
