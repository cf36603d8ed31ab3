"""Pen movements as overlapping strokes of lognormal speed (after Plamondon's sigma-lognormal)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]]

_INSTANTS = 400
_DELAY = -1.9
"""Logarithm of the seconds in which half of a stroke is done."""
_TRAIL = 0.45
"""Seconds after which the last stroke has ended."""


@dataclass(frozen=True)
class Strokes:
    """One value per stroke, in the order of writing; lengths are in heights of a small letter."""

    length: Values
    angle: Values
    """Direction, anticlockwise from the right."""
    curl: Values
    """How much the direction turns on the way."""
    gap: Values
    """Seconds since the stroke before began."""
    spread: Values
    """How drawn out the stroke is."""
    down: NDArray[np.bool_]
    """Whether the pen is on the paper."""

    def varied(self, rng: np.random.Generator, amount: float) -> Strokes:
        """The same movement once more, as alike as a hand can do it."""
        slips = rng.normal(0, amount, (4, len(self.length)))
        return replace(
            self,
            length=self.length * np.exp(slips[0]),
            angle=self.angle + slips[1],
            curl=self.curl + 1.5 * slips[2],
            gap=self.gap * np.exp(1.5 * slips[3]),
        )


@dataclass(frozen=True)
class Line:
    """Points at equal distances along a movement, and what the pen does there."""

    x: Values
    y: Values
    speed: Values
    """As a multiple of the median."""
    touch: Values
    """From 0, above the paper, to 1, on it."""


def written(strokes: Strokes, points: int) -> Line:
    """The velocities of all strokes add up, so that each runs smoothly into the next."""
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
    return Line(x, y, speed / np.median(speed[touch > 0.5]), touch)


def unsteady(rng: np.random.Generator, points: int, period: float) -> Values:
    """Smooth noise along a line: a cubic spline through a random height every `period` points."""
    pieces = max(round(points / period), 1)
    heights = rng.normal(0, 1, pieces + 3)
    place = np.linspace(0, pieces, points, endpoint=False)
    piece = place.astype(np.int64)
    u = place - piece
    weights = (1 - u) ** 3, 3 * u**3 - 6 * u**2 + 4, 3 * (u + u**2 - u**3) + 1, u**3
    near = np.stack([heights[piece + offset] for offset in range(4)])
    curve: Values = (np.stack(weights) * near).sum(0) / 6
    return curve
