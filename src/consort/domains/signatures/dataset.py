"""Signatures as a data set with two tasks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.domains.signatures.scan import Scan
from consort.domains.signatures.tasks import Detection, Identification, identity
from consort.errors import UsageError


def signature_dataset(
    name: str,
    images: NDArray[np.uint8],
    users: NDArray[np.int64],
    genuine: NDArray[np.bool_],
    scan: Scan | None = None,
) -> Dataset:
    """A data set of signatures with the tasks `identify` and `detect`.

    `identify` predicts the user of a genuine signature, `detect` distinguishes genuine signatures
    (1) from forgeries (0). The label for partitioning is the user, so that label skew keeps a
    user's genuine signatures and forgeries together.

    Args:
        name: The name of the data set.
        images: Bright ink on black, images x height x width.
        users: The claimed user of each image, numbered from 0 without gaps.
        genuine: Whether the claimed user wrote it.
        scan: How further images are read from files.

    Returns:
        The data set.
    """
    claimed, truth = torch.from_numpy(users), torch.from_numpy(genuine.astype(np.int64))
    return Dataset(
        name=name,
        examples=Examples(
            torch.from_numpy(images[:, None]),
            {"identify": identity(claimed, truth), "detect": truth},
        ),
        tasks={"identify": Identification(int(users.max()) + 1), "detect": Detection()},
        labels=users,
        strata=2 * users + genuine,
        prepare=ink,
        reader=scan,
    )


def is_signatures(dataset: Dataset) -> bool:
    """Whether `dataset` has the tasks of signatures, `identify` and `detect`."""
    return {"identify", "detect"} <= dataset.tasks.keys()


def held_out(dataset: Dataset, users: int) -> tuple[Dataset, Dataset]:
    """Holds out the last users of a data set.

    Args:
        dataset: A data set of signatures.
        users: The number of users to hold out.

    Returns:
        The data set without these users, and a data set of these users only.

    Raises:
        UsageError: If the data set has no signatures or no users would remain.
    """
    if not is_signatures(dataset):
        raise UsageError(
            f"data set {dataset.name!r} has no users to hold out: signatures are needed"
        )
    known = int(dataset.labels.max()) + 1 - users
    if known < 1:
        raise UsageError(
            f"data set {dataset.name!r} has {known + users} users: holding {users} of them out "
            "leaves none to train on"
        )
    last = dataset.labels >= known
    kept = _only(dataset, ~last)
    return replace(kept, tasks=kept.tasks | {"identify": Identification(known)}), _only(
        dataset, last
    )


def _only(dataset: Dataset, chosen: NDArray[np.bool_]) -> Dataset:
    return replace(
        dataset,
        examples=dataset.examples.take(torch.from_numpy(chosen.nonzero()[0])),
        labels=dataset.labels[chosen],
        strata=None if dataset.strata is None else dataset.strata[chosen],
    )


def ink(images: Tensor) -> Tensor:
    """Converts bytes 0…255 to floats from 0, paper, to 1."""
    return images.to(torch.float32).div_(255)
