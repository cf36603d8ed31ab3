"""Image domains: the same objects as seen by different cameras."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.floating[Any]]


def restyled(rng: np.random.Generator, pictures: Pixels) -> Pixels:
    """Applies one randomly drawn contrast, brightness, colour cast and blur to all images.

    Args:
        rng: The source of randomness.
        pictures: Values in [0, 1], images x channels x height x width.

    Returns:
        The images of a new domain.
    """
    contrast = rng.uniform(0.4, 1.0)
    brightness = rng.uniform(0.3, 0.7)
    cast = rng.uniform(-0.25, 0.25, (pictures.shape[1], 1, 1))
    for _ in range(rng.integers(0, 3)):
        pictures = _blurred(_blurred(pictures, axis=2), axis=3)
    return ((pictures - 0.5) * contrast + brightness + cast).astype(np.float32)


def _blurred(pictures: Pixels, axis: int) -> Pixels:
    """Averages each pixel with its neighbours along one axis, weighted 1, 2, 1."""
    widths = [(1, 1) if number == axis else (0, 0) for number in range(4)]
    before, here, after = (
        np.take(np.pad(pictures, widths, mode="edge"), range(at, at + pictures.shape[axis]), axis)
        for at in range(3)
    )
    blurred: Pixels = (before + 2 * here + after) / 4
    return blurred
