"""Thin edges, and how many of them match the true ones within a tolerance."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def thinned(strengths: Tensor) -> Tensor:
    """Keeps of every map what is strongest across its edge; the rest becomes zero.

    The way across is the one along which a neighbourhood changes most; neighbours one pixel away
    on both sides are interpolated.
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
    """The maps at every pixel's place plus a step (right, down)."""
    height, width = maps.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    places = torch.stack([columns, rows], -1) + steps
    grid = (2 * places + 1) / torch.tensor([width, height]) - 1
    return F.grid_sample(maps, grid, padding_mode="border", align_corners=False)


def count_matches(
    strengths: Tensor, truth: Tensor, known: Tensor, reach: float, thresholds: Sequence[float]
) -> Tensor:
    """By threshold: edges found that are near a true one, all found, all true, those near a found.

    Near is a distance of at most `reach` pixels. One true edge may so vouch for several that were
    found: an upper bound of a matching in pairs, and equal to it where edges are thin and apart.
    """
    counts = torch.zeros(4, len(thresholds), dtype=torch.int64)
    truth = truth & known
    near_truth = _widened(truth, reach)
    for place, threshold in enumerate(thresholds):
        found = (strengths >= threshold) & known
        hits, recalled = found & near_truth, truth & _widened(found, reach)
        rows = hits.sum(), found.sum(), truth.sum(), recalled.sum()
        counts[:, place] = torch.stack(rows)
    return counts


def _widened(marks: Tensor, reach: float) -> Tensor:
    """All pixels within reach of a mark."""
    side = int(reach)
    distance = torch.arange(-side, side + 1)
    disc = (distance[:, None] ** 2 + distance**2 <= reach**2).float()[None, None]
    return F.conv2d(marks[:, None].float(), disc, padding=side)[:, 0] > 0.5
