"""Thinning edge maps and matching them with ground truth within a tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional as F


def thinned(strengths: Tensor) -> Tensor:
    """Non-maximum suppression: keeps a pixel only if it is the strongest across its edge.

    The direction across is the one in which the neighbourhood changes most; the values one pixel
    away on both sides are interpolated.

    Args:
        strengths: Edge strengths, images x height x width.

    Returns:
        The strengths, zero where they are not the strongest.
    """
    maps = strengths[:, None]
    down, right = torch.gradient(F.avg_pool2d(maps, 3, 1, 1), dim=(2, 3))
    changes = torch.cat([down * down, down * right, right * right], 1)
    down_down, both, right_right = torch.split(F.avg_pool2d(changes, 5, 1, 2), 1, dim=1)
    across = 0.5 * torch.atan2(2 * both, right_right - down_down)
    step = torch.cat([across.cos(), across.sin()], 1).permute(0, 2, 3, 1)
    sides = [_shifted(maps, sign * step) for sign in (1, -1)]
    strongest = (maps * 1.01 >= sides[0]) & (maps * 1.01 >= sides[1])
    return torch.where(strongest, maps, 0.0)[:, 0]


def _shifted(maps: Tensor, steps: Tensor) -> Tensor:
    """Samples the maps at every pixel's position plus a step (right, down)."""
    height, width = maps.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = torch.stack([columns, rows], -1) + steps
    grid = (2 * places + 1) / torch.tensor([width, height]) - 1
    return F.grid_sample(maps, grid, padding_mode="border", align_corners=False)


def count_matches(
    strengths: Tensor, truth: Tensor, known: Tensor, reach: float, thresholds: Sequence[float]
) -> Tensor:
    """Counts matches between predicted and true edges for every threshold.

    A true edge pixel may match several predicted ones. This is an upper bound of a one-to-one
    matching, and equal to it where edges are thin and apart.

    Args:
        strengths: Predicted edge strengths, images x height x width.
        truth: True edges.
        known: Pixels with a known target.
        reach: The largest distance of a match, in pixels.
        thresholds: The strengths from which on a pixel counts as predicted.

    Returns:
        By threshold (columns): predicted edge pixels near a true one, all predicted, all true, and
        true ones near a predicted one.
    """
    truth = truth & known
    levels = torch.tensor(thresholds, dtype=strengths.dtype)
    near_truth = _strongest_near(truth.to(strengths.dtype), reach) > 0
    nearest = _strongest_near(strengths.where(known, -torch.inf), reach)
    hits, found, recalled = (
        _reaching(values, levels)
        for values in (strengths[known & near_truth], strengths[known], nearest[truth])
    )
    return torch.stack([hits, found, torch.full_like(hits, int(truth.sum())), recalled])


def _strongest_near(maps: Tensor, reach: float) -> Tensor:
    """The largest value within reach of every pixel, ignoring NaN."""
    side = int(reach)
    height, width = maps.shape[1:]
    padded = F.pad(maps, (side,) * 4, value=-torch.inf)
    largest = maps
    for down, right in product(range(-side, side + 1), repeat=2):
        if down**2 + right**2 <= reach**2:
            top, left = side + down, side + right
            largest = largest.fmax(padded[:, top : top + height, left : left + width])
    return largest


def _reaching(values: Tensor, levels: Tensor) -> Tensor:
    """For each level, how many values reach it."""
    ordered = values[values >= levels.min()].sort().values
    return len(ordered) - torch.searchsorted(ordered, levels)
