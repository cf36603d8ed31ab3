"""Synthetic signatures and forgeries: the counterpart of CEDAR, BHSig260 and GPDS."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from consort.core.bounds import Probability
from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.domains.signatures.dataset import signature_dataset
from consort.domains.signatures.scan import Scan
from consort.domains.signatures.synthetic.autograph import autograph
from consort.domains.signatures.synthetic.strokes import PenLine, Strokes, Values, unsteady, written

Side = Annotated[int, Field(ge=16)]
Image = NDArray[np.uint8]

_SLIPS = 0.05
"""The variation of strokes between two signatures of one user."""
_PIXELS_APART = 0.7
"""The distance of points along a line, in pixels."""


def synthetic_signatures(
    seed: int,
    *,
    users: Annotated[int, Field(ge=1)] = 20,
    genuine: Annotated[int, Field(ge=1)] = 24,
    forged: Annotated[int, Field(ge=0)] = 24,
    size: tuple[Side, Side] = (64, 96),
    skill: Probability = 1.0,
) -> Dataset:
    """Pen strokes of synthetic users, and of forgers who imitate them slowly and with a tremor.

    Args:
        seed: The seed of all random choices.
        users: The number of users.
        genuine: The number of genuine signatures per user.
        forged: The number of forgeries per user.
        size: Height and width of the images in pixels.
        skill: The skill of the best forgers, from 0 to 1; others have less.

    Returns:
        The data set with the tasks `identify` and `detect`.
    """
    rng = np.random.default_rng(derive(seed, "synthetic_signatures"))
    truths = np.tile(np.arange(genuine + forged) < genuine, users)
    images = [
        image for _ in range(users) for image in _collected(rng, genuine, forged, size, skill)
    ]
    numbers = np.repeat(np.arange(users), genuine + forged)
    scan = Scan(size, cleaned=False)
    return signature_dataset("synthetic_signatures", np.stack(images), numbers, truths, scan)


def _collected(
    rng: np.random.Generator, genuine: int, forged: int, size: tuple[int, int], skill: float
) -> list[Image]:
    strokes = autograph(rng)
    scale = _filling(strokes, size) * rng.uniform(0.85, 1)
    points = max(int(strokes.length.sum() * scale / _PIXELS_APART), 100)
    lines = [signed(rng, strokes, points) for _ in range(genuine)]
    lines += [imitated(rng, strokes, points, skill) for _ in range(forged)]
    return [inked(rng, _placed(rng, line, scale, size), size) for line in lines]


def signed(rng: np.random.Generator, strokes: Strokes, points: int) -> PenLine:
    """A genuine signature: fast and smooth, with gradual pen-down and pen-up.

    Args:
        rng: The source of randomness.
        strokes: How the user signs.
        points: The number of points of the line.

    Returns:
        The line of the pen.
    """
    line = written(strokes.varied(rng, _SLIPS), points)
    touch = np.clip(2 * line.touch - 0.7, 0, 1)
    return _shaken(rng, replace(line, touch=touch), strokes, 0.012)


def imitated(rng: np.random.Generator, strokes: Strokes, points: int, best: float = 1.0) -> PenLine:
    """A forgery: nearly the same shape, but at a more even speed and with a tremor.

    Forgers differ in skill: better ones reproduce more of the user's rhythm.

    Args:
        rng: The source of randomness.
        strokes: How the user signs.
        points: The number of points of the line.
        best: The skill of the best forgers.

    Returns:
        The line of the pen.
    """
    skill = best * rng.random()
    line = written(strokes.varied(rng, 1.2 * _SLIPS), points)
    hesitation = np.exp(0.22 * unsteady(rng, points, points / strokes.length.sum()))
    speed = hesitation * np.maximum(line.speed, 1e-6) ** (0.1 + 0.6 * skill)
    touch = np.clip(4 * line.touch - 1.8, 0, 1)
    return _shaken(rng, replace(line, speed=speed, touch=touch), strokes, 0.06 - 0.045 * skill)


def _shaken(rng: np.random.Generator, line: PenLine, strokes: Strokes, tremor: float) -> PenLine:
    period = 0.35 * len(line.x) / strokes.length.sum()
    x, y = (values + tremor * unsteady(rng, len(values), period) for values in (line.x, line.y))
    return replace(line, x=x, y=y)


def _filling(strokes: Strokes, size: tuple[int, int]) -> float:
    """The scale, in pixels per letter height, at which the centred signature just fits."""
    line = written(strokes, 500)
    on_paper = line.touch > 0.5
    reach = [abs(v[on_paper] - v[on_paper].mean()).max() for v in (line.y, line.x)]
    return float(min(0.47 * side / half for side, half in zip(size, reach, strict=True)))


def _placed(
    rng: np.random.Generator, line: PenLine, scale: float, size: tuple[int, int]
) -> PenLine:
    """Converts to pixels, slightly scaled, rotated and slanted, with the centre of mass centred."""
    wide, high = np.exp(rng.normal(0, 0.035, 2)) * scale
    slant, turn = rng.normal(0, 0.04), rng.normal(0, 0.03)
    x, y = wide * (line.x + slant * line.y), -high * line.y
    x, y = x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)
    height, width = size
    return replace(
        line,
        x=x - np.average(x, weights=line.touch) + (width - 1) / 2,
        y=y - np.average(y, weights=line.touch) + (height - 1) / 2,
    )


def inked(rng: np.random.Generator, line: PenLine, size: tuple[int, int]) -> Image:
    """Renders a line as bright ink on black; a faster pen gives a thinner and paler line.

    Args:
        rng: The source of randomness.
        line: The line in pixels.
        size: Height and width of the image.

    Returns:
        The image.
    """
    pen = max(size) * rng.uniform(0.0055, 0.0095)
    width = pen * np.clip(np.maximum(line.speed, 1e-6) ** -0.35, 0.55, 1.5)
    tone = rng.uniform(0.65, 1) * np.clip(1.1 - 0.18 * line.speed, 0.35, 1) * line.touch
    seen = line.touch > 0.05
    radius = width * (0.35 + 0.65 * line.touch)
    return _stamped(line.x[seen], line.y[seen], radius[seen], tone[seen], size)


def _stamped(x: Values, y: Values, radius: Values, tone: Values, size: tuple[int, int]) -> Image:
    """Draws a disc at every point; where discs overlap, the strongest ink counts."""
    height, width = size
    reach = int(np.ceil(radius.max() + 0.5))
    around = np.arange(-reach, reach + 1)
    columns = np.rint(x).astype(np.int64)[:, None, None] + around
    rows = np.rint(y).astype(np.int64)[:, None, None] + around[:, None]
    distance = np.hypot(columns - x[:, None, None], rows - y[:, None, None])
    ink = np.clip(radius[:, None, None] + 0.5 - distance, 0, 1) * tone[:, None, None]
    inside = (ink > 0) & (columns >= 0) & (columns < width) & (rows >= 0) & (rows < height)
    image = np.zeros(height * width)
    np.maximum.at(image, (rows * width + columns)[inside], ink[inside])
    return np.rint(255 * image.reshape(size)).astype(np.uint8)
