"""CIFAR-100: 32x32 colour images of a hundred classes (Krizhevsky 2009)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from consort.data.dataset import Dataset
from consort.data.folder import not_found, read_records
from consort.data.pixels import labelled_images

CLASSES = {"coarse": 20, "fine": 100}
"""The number of classes of each label byte of a record, in their order."""
PARTS = ("cifar-100-binary/train.bin", "cifar-100-binary/test.bin")


def cifar100(folder: Path | None, *, labels: Literal["fine", "coarse"] = "fine") -> Dataset:
    """CIFAR-100, training and test images pooled, from `cifar-100-binary` on disk.

    Args:
        folder: The data folder.
        labels: The 100 fine classes or the 20 coarse ones.

    Returns:
        The data set with the task `classify`.

    Raises:
        UsageError: If the files are not in the folder.
        Failure: If a file is damaged.
    """
    if not folder or not all((folder / part).is_file() for part in PARTS):
        layouts = (" beside ".join(PARTS),)
        raise not_found("cifar100", folder, layouts, twin="synthetic_images")
    kinds = tuple(CLASSES.values())
    records = np.concatenate([read_records(folder / part, kinds, 3 * 32 * 32) for part in PARTS])
    images = records[:, len(kinds) :].reshape(-1, 3, 32, 32)
    column = list(CLASSES).index(labels)
    return labelled_images("cifar100", images, records[:, column].astype(np.int64), kinds[column])
