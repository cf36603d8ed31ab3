"""Pen movements as overlapping strokes of lognormal speed (after Plamondon's sigma-lognormal)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]]

_INSTANTS = 400
"""The number of time steps of a movement."""
_DELAY = -1.9
"""The logarithm of the seconds after which half of a stroke is done."""
_TRAIL = 0.45
"""The seconds from the start of the last stroke to the end of the movement."""


@dataclass(frozen=True)
class Strokes:
    """One value per stroke, in the order of writing."""

    length: Values
    """In multiples of the height of a small letter."""
    angle: Values
    """The direction in radians, anticlockwise from the right."""
    curl: Values
    """The change of direction along the stroke, in radians."""
    gap: Values
    """The seconds since the start of the previous stroke."""
    spread: Values
    """The lognormal's shape parameter: larger values stretch the stroke in time."""
    down: NDArray[np.bool_]
    """Whether the pen is on the paper."""

    def varied(self, rng: np.random.Generator, amount: float) -> Strokes:
        """The same movement with random variations.

        Args:
            rng: The source of randomness.
            amount: The standard deviation of the variations.

        Returns:
            The varied strokes.
        """
        slips = rng.normal(0, amount, (4, len(self.length)))
        return replace(
            self,
            length=self.length * np.exp(slips[0]),
            angle=self.angle + slips[1],
            curl=self.curl + 1.5 * slips[2],
            gap=self.gap * np.exp(1.5 * slips[3]),
        )


@dataclass(frozen=True)
class PenLine:
    """Equidistant points along a movement, and the state of the pen there."""

    x: Values
    y: Values
    speed: Values
    """The speed as a multiple of the median."""
    touch: Values
    """The contact with the paper, from 0 (pen up) to 1 (pen down)."""


def written(strokes: Strokes, points: int) -> PenLine:
    """Computes the line of a movement; the velocities of overlapping strokes are added.

    Args:
        strokes: The strokes of the movement.
        points: The number of points of the line.

    Returns:
        The line.
    """
    begin = np.cumsum(strokes.gap)[:, None]
    time = np.linspace(begin[0, 0], begin[-1, 0] + _TRAIL, _INSTANTS)
    step = time[1] - time[0]
    logs, spread = np.log(np.maximum(time - begin, 1e-6)), strokes.spread[:, None]
    pace = np.exp(-(((logs - _DELAY) / spread) ** 2) / 2 - logs) / (spread * np.sqrt(2 * np.pi))
    turned = strokes.angle[:, None] + strokes.curl[:, None] * (np.cumsum(pace, 1) * step - 0.5)
    speeds = strokes.length[:, None] * pace
    vx, vy = (speeds * np.cos(turned)).sum(0), (speeds * np.sin(turned)).sum(0)
    touch = speeds[strokes.down].sum(0) / np.maximum(speeds.sum(0), 1e-9)
    speed = np.hypot(vx, vy)
    way = np.cumsum(speed) * step
    places = np.linspace(way[0], way[-1], points)
    x, y, speed, touch = (
        np.interp(places, way, values)
        for values in (np.cumsum(vx) * step, np.cumsum(vy) * step, speed, touch)
    )
    return PenLine(x, y, speed / np.median(speed[touch > 0.5]), touch)


def unsteady(rng: np.random.Generator, points: int, period: float) -> Values:
    """Smooth random noise: a cubic B-spline with a random coefficient every `period` points.

    Args:
        rng: The source of randomness.
        points: The number of values.
        period: The number of values per coefficient.

    Returns:
        The noise.
    """
    pieces = max(round(points / period), 1)
    heights = rng.normal(0, 1, pieces + 3)
    place = np.linspace(0, pieces, points, endpoint=False)
    piece = place.astype(np.int64)
    u = place - piece
    weights = (1 - u) ** 3, 3 * u**3 - 6 * u**2 + 4, 3 * (u + u**2 - u**3) + 1, u**3
    near = np.stack([heights[piece + offset] for offset in range(4)])
    curve: Values = (np.stack(weights) * near).sum(0) / 6
    return curve
