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
    """Images (N, H, W) of bright ink; users count from 0, and no number is left out.

    `identify` tells the user of a genuine signature, `detect` a genuine one (1) from a forgery
    (0). The user is the label, so that label skew keeps a user's signatures and the forgeries of
    them together.
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
        scan=scan,
    )


def is_signatures(dataset: Dataset) -> bool:
    """Whether a data set tells users and forgeries."""
    return {"identify", "detect"} <= dataset.tasks.keys()


def held_out(dataset: Dataset, users: int) -> tuple[Dataset, Dataset]:
    """The data set without its last users, and these users alone."""
    if not is_signatures(dataset):
        raise UsageError(f"data set {dataset.name!r} has no users to hold out: it is no signatures")
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
    """Bytes 0…255 as floats from 0, paper, to 1."""
    return images.to(torch.float32).div_(255)
