"""Impressions of a synthetic finger: its position and pressure, and the sensor's properties."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consort.domains.fingerprints.synthetic.ridges import Field

MARGIN = 1.5
"""The side of a master print relative to the area that a sensor sees."""


@dataclass(frozen=True)
class Sensor:
    """What all images of a sensor have in common; grey levels range from 0, black, to 1."""

    resolution: float
    """The sensor's pixels per pixel of the final image."""
    paper: float
    """The grey level of the background."""
    ink: float
    """The grey level of ridges."""
    grain: float
    """The standard deviation of its noise."""
    shadow: float
    """How much darker the corners are."""


SENSORS = (
    Sensor(resolution=1.0, paper=0.97, ink=0.05, grain=0.02, shadow=0.0),
    Sensor(resolution=0.8, paper=0.62, ink=0.15, grain=0.04, shadow=0.25),
    Sensor(resolution=0.65, paper=0.42, ink=0.12, grain=0.05, shadow=0.1),
    Sensor(resolution=0.9, paper=0.78, ink=0.3, grain=0.08, shadow=0.2),
)
"""An ink pad, and three that resemble FVC2002's optical, capacitive and synthetic sensors."""


def impression(
    rng: np.random.Generator, finger: Field, size: int, sensor: Sensor
) -> NDArray[np.uint8]:
    """Renders one impression of a finger: dark ridges on the sensor's background.

    Args:
        rng: The source of randomness.
        finger: The master print, see `ridges.master_print`.
        size: The side of the image in pixels.
        sensor: The sensor that takes the image.

    Returns:
        Grey levels, `size` x `size`.
    """
    side = max(round(size * sensor.resolution), 2)
    ridges = _sampled(rng, finger, side)
    pressure = rng.uniform(-0.45, 0.45)  # the harder, the broader the ridges
    ink = np.clip(0.5 + 0.9 * (ridges + pressure), 0, 1)
    ink *= _contact(rng, side) * _skin(rng, side)
    axis = np.linspace(-1, 1, side)
    light = 1 - sensor.shadow * (axis**2 + axis[:, None] ** 2) / 2
    grey = light * (sensor.paper - (sensor.paper - sensor.ink) * ink)
    grey += rng.normal(0, sensor.grain, grey.shape)
    return np.rint(255 * np.clip(_enlarged(grey, size), 0, 1)).astype(np.uint8)


def _sampled(rng: np.random.Generator, finger: Field, side: int) -> Field:
    """The ridges at the sensor's pixels, after a random rotation, shift, scaling and distortion."""
    from scipy.ndimage import map_coordinates

    axis = np.linspace(-0.5, 0.5, side)
    x, y = axis[None, :] + np.zeros((side, 1)), axis[:, None] + np.zeros((1, side))
    x, y = (place + 0.012 * _smooth(rng, side, 4) for place in (x, y))
    turn = np.deg2rad(rng.uniform(-15, 15))
    move = rng.uniform(-0.06, 0.06, 2)
    scale = len(finger) / MARGIN * rng.uniform(0.96, 1.04)
    columns = scale * (x * np.cos(turn) - y * np.sin(turn) + move[0])
    rows = scale * (x * np.sin(turn) + y * np.cos(turn) + move[1])
    middle = (len(finger) - 1) / 2
    found: Field = map_coordinates(
        finger, [rows + middle, columns + middle], order=1, mode="nearest"
    )
    return found


def _contact(rng: np.random.Generator, side: int) -> Field:
    """The contact area of the skin: an irregular oval, of which a part may be missing."""
    axis = np.linspace(-1, 1, side)
    x, y = axis + rng.uniform(-0.12, 0.12), axis[:, None] + rng.uniform(-0.12, 0.12)
    reach = np.hypot(x / rng.uniform(0.7, 0.9), y / rng.uniform(0.85, 1.05))
    if rng.random() < 0.15:  # only one edge of the finger was laid down
        angle = rng.uniform(0, 2 * np.pi)
        cut = x * np.cos(angle) + y * np.sin(angle) + rng.uniform(0.4, 0.7)
        reach = np.maximum(reach, cut + 0.3)
    ragged = 0.05 * _smooth(rng, side, 12) + rng.normal(0, 0.05, reach.shape)
    return np.clip((1 - reach - ragged) * 8 + 0.5, 0, 1).astype(np.float32)


def _skin(rng: np.random.Generator, side: int) -> Field:
    """The factor by which dry patches, pores and scratches reduce the ink."""
    dry = np.clip(rng.uniform(0.05, 0.3) + 0.2 * _smooth(rng, side, 5), 0, 0.7)
    kept = np.where(rng.random((side, side)) < dry, rng.uniform(0.2, 0.6), 1.0)
    axis = np.linspace(-1, 1, side)
    for _ in range(rng.poisson(0.7)):
        angle = rng.uniform(0, np.pi)
        across = axis * np.cos(angle) + axis[:, None] * np.sin(angle) - rng.uniform(-0.6, 0.6)
        kept *= np.where(np.abs(across + 0.05 * _smooth(rng, side, 4)) < 0.015, 0.15, 1.0)
    return kept.astype(np.float32)


def _smooth(rng: np.random.Generator, side: int, knots: int) -> Field:
    """Smooth noise of deviation about 1 with `knots` independent values per side."""
    return _enlarged(rng.standard_normal((knots, knots)), side)


def _enlarged(values: NDArray[np.floating], side: int) -> Field:
    from PIL import Image

    picture = Image.fromarray(values.astype(np.float32))
    return np.asarray(picture.resize((side, side), Image.Resampling.BICUBIC))
