"""Images stored as bytes, which each client converts to floats when it uses them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.tasks import Classification


def scale(images: Tensor) -> Tensor:
    """Converts bytes 0…255 to floats from -1 to 1, as with mean 0.5 and deviation 0.5 of [0, 1]."""
    return images.to(torch.float32).div_(127.5).sub_(1)


_MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
_DEVIATION = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def standardise(images: Tensor) -> Tensor:
    """Converts RGB bytes to floats, standardised by ImageNet's mean and standard deviation."""
    return images.to(torch.float32).div_(255).sub_(_MEAN).div_(_DEVIATION)


def labelled_images(
    name: str,
    images: NDArray[np.uint8],
    labels: NDArray[np.int64],
    classes: int,
    owners: NDArray[np.int64] | None = None,
) -> Dataset:
    """A data set of images with one classification task, `classify`.

    Args:
        name: The name of the data set.
        images: Bytes, images x channels x height x width.
        labels: The class of each image, from 0.
        classes: The number of classes.
        owners: The natural client of each image, if there is one.

    Returns:
        The data set; its inputs are scaled to -1…1.
    """
    return Dataset(
        name=name,
        examples=Examples(torch.from_numpy(images), {"classify": torch.from_numpy(labels)}),
        tasks={"classify": Classification(classes)},
        labels=labels,
        owners=owners,
        prepare=scale,
    )
