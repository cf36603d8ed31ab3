"""Synthetic handwritten characters with their writers: the counterpart of FEMNIST."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from consort.core.randomness import derive
from consort.data.dataset import Dataset
from consort.data.examples import Examples
from consort.data.pixels import scale
from consort.domains.images.synthetic.glyphs import GLYPHS, Points
from consort.tasks import Classification

Pixels = NDArray[np.floating[Any]]

_SIZE = 28
"""The side of the images in pixels, as in FEMNIST."""


def synthetic_writers(
    seed: int,
    *,
    classes: Annotated[int, Field(ge=2, le=len(GLYPHS))] = 10,
    writers: Annotated[int, Field(ge=1)] = 20,
    per_writer: Annotated[int, Field(ge=1)] = 100,
) -> Dataset:
    """Digits and letters by writers who differ in slant, size, pen and letter shapes.

    Args:
        seed: The seed of all random choices.
        classes: The number of characters, digits first.
        writers: The number of writers.
        per_writer: The number of characters by each writer.

    Returns:
        The data set with the task `classify`; its owners are the writers.
    """
    rng = np.random.default_rng(derive(seed, "synthetic_writers"))
    owners = np.repeat(np.arange(writers), per_writer)
    labels = rng.integers(0, classes, len(owners))
    hands = Hand.drawn(rng, writers)
    images = np.empty((len(owners), 1, _SIZE, _SIZE), dtype=np.uint8)
    for label in range(classes):
        rows = np.flatnonzero(labels == label)
        images[rows, 0] = _written(rng, GLYPHS[label], hands, owners[rows])
    return Dataset(
        name="synthetic_writers",
        examples=Examples(torch.from_numpy(images), {"classify": torch.from_numpy(labels)}),
        tasks={"classify": Classification(classes)},
        labels=labels,
        owners=owners,
        prepare=scale,
    )


@dataclass(frozen=True)
class Hand:
    """The handwriting of several writers: one row per writer."""

    slant: Points
    """Horizontal shift per unit of height."""
    height: Points
    """Half the height of a character; the image reaches from -1 to 1."""
    width: Points
    """Half the width of a character."""
    pen: Points
    """Half the width of the pen's line."""
    darkness: Points
    """Of the ink, from 0 to 1."""

    @classmethod
    def drawn(cls, rng: np.random.Generator, writers: int) -> Hand:
        """Draws the handwriting of each of `writers` people, using `rng`."""
        ranges = ((-0.5, 0.5), (0.45, 0.75), (0.25, 0.5), (0.06, 0.16), (0.7, 1.0))
        return cls(*(rng.uniform(*ends, (writers, 1)).astype(np.float32) for ends in ranges))

    def of(self, owners: NDArray[np.int64]) -> Hand:
        """The handwriting of each example, given the writer of each in `owners`."""
        return Hand(*(getattr(self, field.name)[owners] for field in fields(self)))


def _written(
    rng: np.random.Generator,
    glyph: tuple[Points, ...],
    hands: Hand,
    owners: NDArray[np.int64],
) -> NDArray[np.uint8]:
    """Dark ink on white; a writer deforms all examples of one character in the same way."""
    hand = hands.of(owners)
    shift = rng.normal(0, 0.06, (2, len(owners), 1)).astype(np.float32)
    nearest = np.full((len(owners), _SIZE, _SIZE), np.inf, dtype=np.float32)
    for stroke in glyph:
        habit = rng.normal(0, 0.12, (len(hands.slant), *stroke.shape))[owners]
        slip = rng.normal(0, 0.08, habit.shape)
        points = _rounded((stroke + habit + slip).astype(np.float32))
        y = points[..., 1] * hand.height + shift[1]
        x = points[..., 0] * hand.width - y * hand.slant + shift[0]
        for end in range(1, x.shape[1]):
            np.minimum(nearest, _squared_distance(x, y, end), out=nearest)
    ink = np.clip((hand.pen[..., None] - np.sqrt(nearest)) * _SIZE / 2 + 0.5, 0, 1)
    return np.rint(255 * (1 - ink * hand.darkness[..., None])).astype(np.uint8)


def _rounded(points: Points) -> Points:
    """Rounds the corners of polylines by one step of Chaikin's corner cutting."""
    start, stop = points[:, :-1], points[:, 1:]
    cut = np.stack([0.75 * start + 0.25 * stop, 0.25 * start + 0.75 * stop], axis=2)
    inner = cut.reshape(len(points), -1, 2)[:, 1:-1]
    return np.concatenate([points[:, :1], inner, points[:, -1:]], axis=1)


def _squared_distance(x: Pixels, y: Pixels, end: int) -> Pixels:
    """The squared distance of every pixel to the line segment that ends at point number `end`."""
    axis = np.linspace(-1, 1, _SIZE, dtype=np.float32)
    x0, y0 = x[:, end - 1, None, None], y[:, end - 1, None, None]
    dx, dy = x[:, end, None, None] - x0, y[:, end, None, None] - y0
    from_x, from_y = axis - x0, axis[:, None] - y0
    along = (from_x * dx + from_y * dy) / np.maximum(dx * dx + dy * dy, np.float32(1e-9))
    along = np.clip(along, 0, 1)
    return (from_x - along * dx) ** 2 + (from_y - along * dy) ** 2
