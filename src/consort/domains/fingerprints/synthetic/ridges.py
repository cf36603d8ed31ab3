"""Ridge patterns of synthetic fingers: an orientation field, and ridges grown along it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float32]
Points = tuple[complex, ...]

KINDS = ("arch", "tented arch", "left loop", "right loop", "whorl")
SHARES = (0.04, 0.03, 0.33, 0.32, 0.28)
"""The frequency of each kind (Wilson et al. 1993)."""
PERIOD = 5.0
"""The distance between ridges in a print of 96 pixels, as in SOCOFing."""
_DIRECTIONS = 12
_GROWTH = 5
"""The number of filters, and how often they are applied: more of either changes little."""


def master_print(rng: np.random.Generator, side: int, period: float) -> Field:
    """Generates the complete ridge pattern of a finger.

    Args:
        rng: The source of randomness.
        side: The side of the square in pixels.
        period: The distance between ridges in pixels.

    Returns:
        Values from -1 (valley) to 1 (ridge).
    """
    return grown(rng, orientation(rng, side), period)


def orientation(rng: np.random.Generator, side: int) -> Field:
    """Draws an orientation field of a random kind of finger.

    Args:
        rng: The source of randomness.
        side: The side of the square in pixels.

    Returns:
        The direction of the ridges at every pixel in radians, anticlockwise from horizontal.
    """
    kind = KINDS[rng.choice(len(KINDS), p=SHARES)]
    axis = np.linspace(-1, 1, side, dtype=np.float32)
    x, y = axis + rng.normal(0, 0.05), -axis[:, None] + rng.normal(0, 0.05)
    if kind == "arch":
        height = rng.uniform(0.5, 0.9) * np.exp(-(((y + 0.3) / 0.5) ** 2))
        slope = -height * np.pi / 1.4 * np.sin(np.pi * x / 1.4)
        return np.asarray(np.arctan(slope), dtype=np.float32)
    cores, deltas = _singular_points(rng, kind)
    plane = x + 1j * y
    turn = np.sum([np.angle(plane - core) for core in cores], axis=0)
    turn -= np.sum([np.angle(plane - delta) for delta in deltas], axis=0)
    bend = rng.uniform(0.5, 0.8) * x * np.clip(y + 0.2, 0, 1)  # ridges at the tip are round
    return np.asarray(turn / 2 - bend, dtype=np.float32)


def _singular_points(rng: np.random.Generator, kind: str) -> tuple[Points, Points]:
    """The positions of cores, where ridges turn back, and deltas, where three ridge flows meet."""

    def near(x: float, y: float) -> complex:
        return complex(x + rng.normal(0, 0.08), y + rng.normal(0, 0.08))

    if kind == "tented arch":
        return (near(0, 0.05),), (near(0, -0.4),)
    if kind == "whorl":
        gap = rng.uniform(0.05, 0.2)
        cores = near(0, 0.1 + gap), near(0, 0.1 - gap)
        return cores, (near(-0.6, -0.55), near(0.6, -0.55))
    side = 1 if kind == "left loop" else -1
    return (near(0, 0.1),), (near(0.5 * side, -0.5),)


def grown(rng: np.random.Generator, directions: Field, period: float) -> Field:
    """Filters noise repeatedly along the given directions until ridges form.

    Where ridges cannot stay parallel, they end or fork: these are the minutiae.

    Args:
        rng: The source of randomness.
        directions: The direction of the ridges at every pixel in radians.
        period: The distance between ridges in pixels.

    Returns:
        Values from -1 (valley) to 1 (ridge).
    """
    side = len(directions)
    bank = _filters(side, round(2 * period) / 2)
    place = directions / np.pi * _DIRECTIONS
    lower = np.floor(place)
    share = (place - lower)[None]
    first, second = (((lower.astype(np.int64) + step) % _DIRECTIONS)[None] for step in (0, 1))
    ridges = rng.standard_normal((side, side)).astype(np.float32)
    for _ in range(_GROWTH):
        filtered = np.fft.irfft2(np.fft.rfft2(ridges) * bank, s=ridges.shape)
        chosen = np.take_along_axis(filtered, first, 0) * (1 - share)
        chosen += np.take_along_axis(filtered, second, 0) * share
        ridges = np.tanh(2 * chosen[0] / chosen.std())
    return ridges


@lru_cache(maxsize=16)
def _filters(side: int, period: float) -> NDArray[np.float32]:
    """For every direction the frequency response of a filter for ridges of this period."""
    angles = np.arange(_DIRECTIONS)[:, None, None] * np.pi / _DIRECTIONS
    rows, columns = -np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)
    along = columns * np.cos(angles) + rows * np.sin(angles)
    across = np.abs(rows * np.cos(angles) - columns * np.sin(angles))
    spread = 0.22 / period
    distance = (across - 1 / period) ** 2 + along**2
    return np.asarray(np.exp(-distance / (2 * spread**2)), dtype=np.float32)
