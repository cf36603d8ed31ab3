"""CIFAR-10: 32 by 32 colour images of ten kinds of things (Krizhevsky 2009)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.folder import not_found, read_arrays
from consort.data.pixels import scale
from consort.errors import Failure, UsageError
from consort.tasks import Classification

Bytes = NDArray[np.uint8]

RECORD = 1 + 3 * 32 * 32
BATCHES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
PUBLISHED = "cifar-10-batches-bin"
REDUCED = "images/cifar10_7500.npz"


def cifar10(folder: Path | None) -> Dataset:
    """CIFAR-10, training and test images pooled, from `cifar-10-batches-bin` on disk."""
    if folder and (folder / PUBLISHED).is_dir():
        images, labels = _published(folder / PUBLISHED)
    elif folder and (folder / REDUCED).is_file():
        images, labels = _reduced(folder / REDUCED)
    else:
        layouts = (f"{PUBLISHED}/*.bin", REDUCED)
        raise not_found("cifar10", folder, layouts, twin="synthetic_images")
    classes = labels.astype(np.int64)
    return Dataset(
        name="cifar10",
        examples=Examples(torch.from_numpy(images), {"classify": torch.from_numpy(classes)}),
        tasks={"classify": Classification(10)},
        labels=classes,
        prepare=scale,
    )


def _published(folder: Path) -> tuple[Bytes, Bytes]:
    records = np.concatenate([_records(folder / batch) for batch in BATCHES])
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def _records(path: Path) -> Bytes:
    if not path.is_file():
        raise UsageError(f"{path} is missing: CIFAR-10 has {', '.join(BATCHES)}")
    content = np.fromfile(path, dtype=np.uint8)
    if len(content) == 0 or len(content) % RECORD or content[::RECORD].max() > 9:
        raise Failure(
            f"{path} is damaged: records of {RECORD} bytes are expected, the first a class 0 to 9"
        )
    return content.reshape(-1, RECORD)


def _reduced(path: Path) -> tuple[Bytes, Bytes]:
    images, labels, more_images, more_labels = read_arrays(
        path, "x_train", "y_train", "x_test", "y_test"
    )
    pooled = np.concatenate([images, more_images]).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(pooled), np.concatenate([labels, more_labels])
