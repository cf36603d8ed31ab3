"""Augmented copies of fingerprints that have only one impression."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from consort.core.randomness import generator_for
from consort.domains.fingerprints.dataset import Images

TURN = math.radians(15)
"""The largest rotation, in radians."""
SHIFT = 0.05
"""The largest shift, relative to the side."""
SCALE = 0.1
"""The largest change of scale."""
PULL = 0.03
"""The largest elastic displacement, relative to the side."""
HIDDEN = 0.3
"""The largest side of the hidden rectangle, relative to the image."""
_KNOTS = 4


def second_views(images: Images, seed: int) -> Images:
    """Rotates, shifts, scales and elastically distorts every image, and hides a part of it.

    Args:
        images: Grey levels, images x height x width.
        seed: The seed of all random choices.

    Returns:
        One augmented copy of each image.
    """
    generator = generator_for(seed, "second views")
    views = np.empty_like(images)
    for start in range(0, len(images), 256):
        part = torch.from_numpy(images[start : start + 256]).float()
        views[start : start + 256] = _view(part, generator).round().byte().numpy()
    return views


def _view(images: Tensor, generator: Generator) -> Tensor:
    """New pixels at the border and the hidden part get the image's brightest grey."""
    count, shape = len(images), images.shape[-2:]
    paper = images.flatten(1).quantile(0.95, dim=1)[:, None, None]
    grid = _affine(count, shape, generator) + _pulled(count, shape, generator)
    moved = F.grid_sample((images - paper)[:, None], grid, align_corners=False)[:, 0]
    return (moved * ~_hidden(count, shape, generator) + paper).clamp_(0, 255)


def _affine(count: int, shape: torch.Size, generator: Generator) -> Tensor:
    turn, right, down, scale = _between(-1, 1, (4, count), generator)
    turn, scale = turn * TURN, 1 + scale * SCALE
    cos, sin = turn.cos() / scale, turn.sin() / scale
    rows = torch.stack([cos, -sin, 2 * SHIFT * right, sin, cos, 2 * SHIFT * down], dim=1)
    return F.affine_grid(rows.view(count, 2, 3), [count, 1, *shape], align_corners=False)


def _pulled(count: int, shape: torch.Size, generator: Generator) -> Tensor:
    coarse = _between(-2 * PULL, 2 * PULL, (count, 2, _KNOTS, _KNOTS), generator)
    fine = F.interpolate(coarse, list(shape), mode="bicubic", align_corners=False)
    return fine.permute(0, 2, 3, 1)


def _hidden(count: int, shape: torch.Size, generator: Generator) -> Tensor:
    """A rectangle at a random place in each image."""
    length = _between(0, HIDDEN, (2, count, 1), generator)
    start = _between(0, 1, (2, count, 1), generator) * (1 - length)
    rows, columns = (
        (place >= start[axis]) & (place < start[axis] + length[axis])
        for axis, place in enumerate((torch.arange(side) + 0.5) / side for side in shape)
    )
    return rows[:, :, None] & columns[:, None, :]


def _between(low: float, high: float, shape: tuple[int, ...], generator: Generator) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=generator)
