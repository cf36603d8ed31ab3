"""How near recovered pictures come to the originals, once each is laid beside its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

EXACT = 100.0
"""Decibels at which a recovered picture counts as exact; more are not told apart."""
RECOGNISED = 20.0
"""Decibels from which on a picture counts as recovered."""
_WINDOW = 11  # pixels of a Gaussian of deviation 1.5, as structural similarity is defined


Perceptual = Callable[[Tensor, Tensor], float]
"""How unlike two pictures look, such as LPIPS."""


class Similarity(NamedTuple):
    """One recovered picture beside one original; values go from 0 to 1."""

    mse: float
    psnr: float
    ssim: float
    """NaN where a picture is smaller than the window, or no picture at all."""
    lpips: float = math.nan
    """NaN without weights, and where a picture is too small."""


def matched(found: Tensor, originals: Tensor) -> list[tuple[int, int]]:
    """Pairs of places, one original for each recovered picture, with the least error in all."""
    from scipy.optimize import linear_sum_assignment

    errors = torch.cdist(found.flatten(1).double(), originals.flatten(1).double()).square()
    rows, columns = linear_sum_assignment(errors.numpy())
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def similarity(found: Tensor, original: Tensor, perceptual: Perceptual | None = None) -> Similarity:
    """The scores of one picture (channels, height, width) with values from 0 to 1."""
    mse = (found.double() - original.double()).square().mean().item()
    psnr = EXACT if mse == 0 else min(EXACT, -10 * torch.tensor(mse).log10().item())
    looks = perceptual(found, original) if perceptual else math.nan
    return Similarity(mse, psnr, _structural(found, original), looks)


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
