"""Pairs of fingerprints as a data set with one task."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.domains.fingerprints.task import Verification

Images = NDArray[np.uint8]
Numbers = NDArray[np.int64]


def fingerprint_dataset(
    name: str, pairs: Images, fingers: Numbers, sensors: Numbers | None = None
) -> Dataset:
    """Pairs (N, 2, H, W), each of one finger, with that finger and the sensor it was laid on.

    The task, `verify`, is to tell pairs of one finger from pairs of two. No finger is torn apart:
    all its pairs go to one client, and there into one split.
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
    )


def grey(images: Tensor) -> Tensor:
    """Bytes 0…255 as floats from 0, black, to 1."""
    return images.to(torch.float32).div_(255)
