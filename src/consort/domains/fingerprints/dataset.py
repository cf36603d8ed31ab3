"""Pairs of fingerprints as a data set with one verification task."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.data.dataset import Dataset, Reader
from consort.data.examples import Examples
from consort.domains.fingerprints.task import Verification

Images = NDArray[np.uint8]
Numbers = NDArray[np.int64]


def fingerprint_dataset(
    name: str,
    pairs: Images,
    fingers: Numbers,
    sensors: Numbers | None = None,
    reader: Reader | None = None,
) -> Dataset:
    """A data set of pairs of fingerprints with the task `verify`: do two prints show one finger?

    All pairs of a finger go to the same client and into the same split.

    Args:
        name: The name of the data set.
        pairs: Two images of the same finger each, pairs x 2 x height x width.
        fingers: The finger of each pair.
        sensors: The sensor of each pair, if there are several.
        reader: How further prints are read from files.

    Returns:
        The data set; its domains are the sensors.
    """
    return Dataset(
        name=name,
        examples=Examples(
            torch.from_numpy(pairs[:, :, None]), {"verify": torch.from_numpy(fingers)}
        ),
        tasks={"verify": Verification()},
        labels=fingers,
        strata=np.zeros_like(fingers) if sensors is None else sensors,
        domains=sensors,
        units=fingers,
        prepare=grey,
        reader=reader,
    )


def grey(images: Tensor) -> Tensor:
    """Converts bytes 0…255 to floats from 0, black, to 1."""
    return images.to(torch.float32).div_(255)
