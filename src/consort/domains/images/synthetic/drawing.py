"""Drawing images of one textured shape each, at random positions, sizes, angles and colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.floating[Any]]
Numbers = NDArray[np.int64]
Field = Callable[[Pixels, Pixels], Pixels]
"""A function of the coordinates u and v of all pixels."""

_AT_ONCE = 256
"""Images drawn together: few enough to fit into the processor's cache."""


def _disc(u: Pixels, v: Pixels) -> Pixels:
    return np.hypot(u, v)


def _square(u: Pixels, v: Pixels) -> Pixels:
    return np.maximum(abs(u), abs(v)) * 1.15


def _cross(u: Pixels, v: Pixels) -> Pixels:
    return np.minimum(np.maximum(3 * abs(u), abs(v)), np.maximum(abs(u), 3 * abs(v)))


def _triangle(u: Pixels, v: Pixels) -> Pixels:
    return np.maximum(v, abs(u) * 0.87 - v / 2) * 1.6


def _ring(u: Pixels, v: Pixels) -> Pixels:
    return 0.5 + 2 * abs(np.hypot(u, v) - 0.75)


def _star(u: Pixels, v: Pixels) -> Pixels:
    wave: Pixels = np.cos(5 * np.arctan2(v, u))
    return (1.4 + 0.5 * wave) * np.hypot(u, v)


def _half(u: Pixels, v: Pixels) -> Pixels:
    return np.maximum(np.hypot(u, v), 1 - 2 * v)


def _hourglass(u: Pixels, v: Pixels) -> Pixels:
    return np.maximum(abs(v), 1 + abs(u) - abs(v)) * 1.05


def _plain(u: Pixels, _v: Pixels) -> Pixels:
    return np.full_like(u, -1)


def _columns(u: Pixels, _v: Pixels) -> Pixels:
    return np.sin(u)


def _rows(_u: Pixels, v: Pixels) -> Pixels:
    return np.sin(v)


def _checks(u: Pixels, v: Pixels) -> Pixels:
    return 2 * np.sin(u) * np.sin(v)


def _dots(u: Pixels, v: Pixels) -> Pixels:
    return np.cos(u) + np.cos(v) - 0.7


SHAPES: tuple[Field, ...] = (_disc, _cross, _triangle, _ring, _star, _square, _half, _hourglass)
"""Below 1 inside the shape; u and v range from -1 to 1 over it."""

TEXTURES: tuple[Field, ...] = (_plain, _columns, _rows, _checks, _dots)
"""Above 0 where the second colour is; one period is 2π in u and v."""


def draw(
    rng: np.random.Generator, shapes: Numbers, textures: Numbers, size: int, channels: int
) -> Pixels:
    """Draws images of textured shapes.

    Args:
        rng: The source of randomness.
        shapes: The shape of each image, as a position in `SHAPES`.
        textures: The texture of each image, as a position in `TEXTURES`.
        size: The side of the images in pixels.
        channels: The number of channels.

    Returns:
        Values in [0, 1], images x channels x height x width.
    """
    return np.concatenate(
        [
            _draw(rng, shapes[at : at + _AT_ONCE], textures[at : at + _AT_ONCE], size, channels)
            for at in range(0, len(shapes), _AT_ONCE)
        ]
    )


def _draw(
    rng: np.random.Generator, shapes: Numbers, textures: Numbers, size: int, channels: int
) -> Pixels:
    count = len(shapes)
    u, v = _placed(rng, count, size)
    inside = _by_kind(SHAPES, shapes, u, v)
    pattern = _by_kind(TEXTURES, textures, *_waves(rng, count, size))
    coverage = np.clip((1 - inside) * size / 4 + 0.5, 0, 1)[:, None]
    second = np.clip(pattern * 2 + 0.5, 0, 1)[:, None]
    ground, ink, other = _colours(rng, count, channels)
    pictures: Pixels = ground + coverage * (ink - ground + second * (other - ink))
    return pictures


def _placed(rng: np.random.Generator, count: int, size: int) -> tuple[Pixels, Pixels]:
    radius = _uniform(rng, 0.55, 0.8, count)
    x = _axis(size) - (0.95 - radius) * _uniform(rng, -1, 1, count)
    y = _axis(size).reshape(1, size, 1) - (0.95 - radius) * _uniform(rng, -1, 1, count)
    return _turned(x / radius, y / radius, _uniform(rng, -0.5, 0.5, count))


def _waves(rng: np.random.Generator, count: int, size: int) -> tuple[Pixels, Pixels]:
    frequency = _uniform(rng, 12, 16, count)
    x = _axis(size) * frequency + _uniform(rng, 0, 2 * np.pi, count)
    y = _axis(size).reshape(1, size, 1) * frequency + _uniform(rng, 0, 2 * np.pi, count)
    return _turned(x, y, _uniform(rng, -0.4, 0.4, count))


def _colours(rng: np.random.Generator, count: int, channels: int) -> Pixels:
    """A dark background, then a medium and a light colour in random order, each with a tint."""
    inks = rng.permuted(np.tile([0.45, 0.95], (count, 1)), axis=1)
    levels = np.vstack([np.full(count, 0.1), inks.T]).reshape(3, count, 1, 1, 1)
    return (levels + rng.uniform(-0.1, 0.1, (3, count, channels, 1, 1))).astype(np.float32)


def _by_kind(kinds: Sequence[Field], chosen: Numbers, u: Pixels, v: Pixels) -> Pixels:
    values = np.empty_like(u)
    for kind, field in enumerate(kinds):
        rows = chosen == kind
        values[rows] = field(u[rows], v[rows])
    return values


def _turned(x: Pixels, y: Pixels, angle: Pixels) -> tuple[Pixels, Pixels]:
    cos, sin = np.cos(angle), np.sin(angle)
    return cos * x + sin * y, cos * y - sin * x


def _axis(size: int) -> Pixels:
    return np.linspace(-1, 1, size, dtype=np.float32).reshape(1, 1, size)


def _uniform(rng: np.random.Generator, low: float, high: float, count: int) -> Pixels:
    return rng.uniform(low, high, (count, 1, 1)).astype(np.float32)
