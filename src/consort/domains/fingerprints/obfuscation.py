"""FP-DFSN, AFFR's preprocessing: noise around minutiae, and a weighted difference of images.

The paper calls it differential privacy, but it is not: nothing is clipped, no privacy budget is
accounted for, and outside the patches around minutiae dividing by 1 - beta restores the image.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.core.bounds import NonNegativeFloat, NonNegativeInt, PositiveFloat, Probability
from consort.core.randomness import derive
from consort.data.page import otsu
from consort.errors import UsageError

Image = NDArray[np.float64]
Mask = NDArray[np.bool_]

SMALLEST_MARGIN = 6
"""The smallest margin, in pixels, in which minutiae are ignored."""
ENDING, FORK = 1, 3
"""Crossing numbers of the two kinds of minutiae."""
_AROUND = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
"""The eight neighbours of a pixel in circular order, as row and column in a 3x3 square."""


@dataclass(frozen=True)
class FpDfsn:
    """Subtracts from each fingerprint a weighted copy of it that is noisy around minutiae."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    beta: Probability = 0.5
    """The weight of the copy."""
    sigma: NonNegativeFloat = 0.1
    """The standard deviation of the noise around minutiae; values range from 0 to 1."""
    reach: NonNegativeInt = 3
    """The distance in pixels from a minutia to the edge of its square patch."""
    cutoff: PositiveFloat = 0.1
    """The frequency above which ridges are sharpened, relative to the highest frequency."""
    margin: Probability = 0.08
    """The width of the border in which minutiae are ignored, relative to the shorter side."""

    def __call__(self, images: Tensor, seed: int) -> Tensor:
        """Obfuscates images; equal images get equal noise.

        Args:
            images: Values from 0 to 1; the last two dimensions are height and width.
            seed: The seed of the noise.

        Returns:
            The obfuscated images, of the same shape.

        Raises:
            UsageError: If the inputs are not images with values from 0 to 1.
        """
        if not (images.is_floating_point() and images.ndim > 2 and _in_range(images)):
            raise UsageError(
                "obfuscation needs images with values from 0 to 1, such as fingerprints: "
                "remove it from the recipe or choose another data set"
            )
        results: dict[bytes, Tensor] = {}
        flat = images.reshape(-1, *images.shape[-2:])
        found = torch.empty_like(flat)
        for place, image in enumerate(flat):
            key = image.numpy().tobytes()
            if key not in results:
                rng = np.random.default_rng(derive(seed, "obfuscation", key.hex()))
                results[key] = torch.from_numpy(self.obfuscated(image.double().numpy(), rng))
            found[place] = results[key]
        return found.view(images.shape)

    def obfuscated(self, image: Image, rng: np.random.Generator) -> Image:
        """Obfuscates one image.

        Args:
            image: Values from 0 to 1, height x width.
            rng: The source of the noise.

        Returns:
            The obfuscated image.
        """
        patches = _dilated(self.minutiae(image), self.reach)
        noise = rng.normal(0, self.sigma, image.shape) * patches
        difference: Image = np.clip((1 - self.beta) * image - self.beta * noise, 0, 1)
        return difference

    def minutiae(self, image: Image) -> Mask:
        """Finds ridge endings and forks, except near the border.

        Args:
            image: Values from 0 to 1, height x width.

        Returns:
            True at minutiae; nowhere if the image is constant.
        """
        from skimage.morphology import skeletonize

        side = min(image.shape)
        sharp = _bytes(high_pass(image, self.cutoff * side / 2))
        threshold = otsu(sharp)
        if threshold is None:
            return np.zeros(image.shape, dtype=bool)
        skeleton = skeletonize(sharp <= threshold)  # type: ignore[no-untyped-call]
        crossings = crossing_numbers(skeleton)
        margin = max(SMALLEST_MARGIN, round(self.margin * side))
        found: Mask = (crossings == ENDING) | (crossings == FORK)
        return found & _inside(image.shape, margin)


def high_pass(image: Image, cutoff: float) -> Image:
    """Removes slow changes: frequencies D are multiplied by 1 - exp(-D² / (2 cutoff²)).

    Args:
        image: Height x width.
        cutoff: The cutoff, like D in periods per image.

    Returns:
        The filtered image.
    """
    return np.asarray(np.fft.ifft2(np.fft.fft2(image) * _damping(image.shape, cutoff)).real)


@lru_cache(maxsize=4)
def _damping(shape: tuple[int, ...], cutoff: float) -> Image:
    rows, columns = (np.fft.fftfreq(length) * length for length in shape)
    squared = rows[:, None] ** 2 + columns**2
    return np.asarray(1 - np.exp(-squared / (2 * cutoff**2)))


def crossing_numbers(skeleton: Mask) -> NDArray[np.int8]:
    """The crossing numbers of a skeleton: half the changes among the eight neighbours of a pixel.

    Args:
        skeleton: True on lines of one pixel's width.

    Returns:
        The crossing number of every pixel of the skeleton, 0 elsewhere.
    """
    height, width = skeleton.shape
    padded = np.pad(skeleton, 1)
    ring = [padded[top : top + height, left : left + width] for top, left in _AROUND]
    changes = np.zeros(skeleton.shape, dtype=np.int8)
    for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
        changes += one ^ other
    return changes // 2 * skeleton


def _bytes(image: Image) -> NDArray[np.uint8]:
    """The image rescaled to 0…255; zeros if it is constant up to rounding."""
    low, span = image.min(), np.ptp(image)
    return np.rint(255 * (image - low) / span if span > 1e-9 else 0 * image).astype(np.uint8)


def _inside(shape: tuple[int, ...], margin: int) -> Mask:
    inside = np.zeros(shape, dtype=bool)
    inside[margin : shape[0] - margin, margin : shape[1] - margin] = True
    return inside


def _dilated(places: Mask, reach: int) -> Mask:
    """The union of the squares around all marked pixels."""
    from scipy.ndimage import maximum_filter

    return np.asarray(maximum_filter(places, 2 * reach + 1, mode="constant"))


def _in_range(images: Tensor) -> bool:
    return bool(((images >= 0) & (images <= 1)).all())
