"""Similarity of recovered images to the originals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

EXACT = 100.0
"""The PSNR in decibels of an exact recovery; higher values are clipped to it."""
RECOGNISED = 20.0
"""The PSNR in decibels from which an image counts as recognisable."""
_WINDOW = 11  # pixels of a Gaussian with standard deviation 1.5, as in the definition of SSIM


Perceptual = Callable[[Tensor, Tensor], float]
"""A perceptual distance between two images, such as LPIPS."""


class Similarity(NamedTuple):
    """Scores of one recovered image against its original; pixel values go from 0 to 1."""

    mse: float
    psnr: float
    ssim: float
    """NaN for images smaller than the window, and for inputs that are not images."""
    lpips: float = math.nan
    """NaN without the weights of LPIPS, and for images that are too small."""


def matched(found: Tensor, originals: Tensor) -> list[tuple[int, int]]:
    """Assigns recovered images to originals so that the total squared error is smallest.

    Args:
        found: The recovered images.
        originals: The originals.

    Returns:
        Pairs of indices: recovered image, original.
    """
    from scipy.optimize import linear_sum_assignment

    errors = torch.cdist(found.flatten(1).double(), originals.flatten(1).double()).square()
    rows, columns = linear_sum_assignment(errors.numpy())
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def similarity(found: Tensor, original: Tensor, perceptual: Perceptual | None = None) -> Similarity:
    """The scores of one recovered image (channels, height, width) with values from 0 to 1.

    Args:
        found: The recovered image.
        original: The original.
        perceptual: An additional distance between images.
    """
    mse = (found.double() - original.double()).square().mean().item()
    psnr = EXACT if mse == 0 else min(EXACT, -10 * torch.tensor(mse).log10().item())
    distance = perceptual(found, original) if perceptual else math.nan
    return Similarity(mse, psnr, _structural(found, original), distance)


def _structural(found: Tensor, original: Tensor) -> float:
    if found.ndim != 3 or min(found.shape[1:]) < _WINDOW:
        return math.nan
    from skimage.metrics import structural_similarity

    value = structural_similarity(  # type: ignore[no-untyped-call]
        original.double().numpy(),
        found.double().numpy(),
        channel_axis=0,
        data_range=1.0,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
    )
    return float(value)
