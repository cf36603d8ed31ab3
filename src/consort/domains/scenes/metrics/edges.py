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
    """Counts one-to-one matches between predicted and true edge pixels for every threshold.

    The matching is as large as possible at every threshold: predicted pixels are added from the
    strongest to the weakest, and each is matched if that leaves those before it matched.

    Args:
        strengths: Predicted edge strengths, images x height x width.
        truth: True edges.
        known: Pixels with a known target.
        reach: The largest distance of a match, in pixels.
        thresholds: The strengths from which on a pixel counts as predicted.

    Returns:
        By threshold (columns): matched pixels, all predicted, all true.
    """
    truth = truth & known
    levels = torch.tensor(thresholds, dtype=strengths.dtype)
    predicted = strengths.where(known, -torch.inf).nan_to_num(-torch.inf)
    matched = [
        _matched(*image, reach, float(levels.min())) for image in zip(predicted, truth, strict=True)
    ]
    hits, found = (_reaching(values, levels) for values in (torch.cat(matched), predicted))
    return torch.stack([hits, found, torch.full_like(hits, int(truth.sum()))])


def _matched(strengths: Tensor, truth: Tensor, reach: float, least: float) -> Tensor:
    """The strengths of the pixels of one image that are matched when they are added."""
    side = int(reach)
    numbers = torch.full_like(truth, -1, dtype=torch.long)
    numbers[truth] = torch.arange(int(truth.sum()))
    numbers = F.pad(numbers, (side,) * 4, value=-1)
    rows, columns = (strengths >= least).nonzero(as_tuple=True)
    values, order = strengths[rows, columns].sort(descending=True, stable=True)
    near = [
        numbers[rows + side + down, columns + side + right]
        for down, right in product(range(-side, side + 1), repeat=2)
        if down**2 + right**2 <= reach**2
    ]
    choices = torch.stack(near, 1)[order].tolist()
    gained = _augmented([[n for n in row if n >= 0] for row in choices], int(truth.sum()))
    return values[torch.tensor(gained, dtype=torch.bool)]


def _augmented(choices: Sequence[Sequence[int]], count: int) -> list[bool]:
    """Which of the nodes make a largest matching larger when they are added one by one.

    Kuhn's algorithm. What a search without success has visited cannot be left by any later path,
    so it is not visited again.

    Args:
        choices: For each node, the partners that it may have.
        count: The number of partners.
    """
    holder, partner, closed = [-1] * count, [-1] * len(choices), [False] * count
    gained = []
    for node in range(len(choices)):
        reached_from: dict[int, int] = {}
        free = _free_partner(node, choices, holder, closed, reached_from)
        gained.append(free >= 0)
        if free < 0:
            for visited in reached_from:
                closed[visited] = True
        while free >= 0:  # everybody on the path passes its partner on
            owner = reached_from[free]
            holder[free], partner[owner], free = owner, free, partner[owner]
    return gained


def _free_partner(
    node: int,
    choices: Sequence[Sequence[int]],
    holder: Sequence[int],
    closed: Sequence[bool],
    reached_from: dict[int, int],
) -> int:
    """The nearest partner that is free, or becomes free if others change theirs; -1 if none."""
    waiting = [node]
    for owner in waiting:
        for partner in choices[owner]:
            if closed[partner] or partner in reached_from:
                continue
            reached_from[partner] = owner
            if holder[partner] < 0:
                return partner
            waiting.append(holder[partner])
    return -1


def _reaching(values: Tensor, levels: Tensor) -> Tensor:
    """For each level, how many values reach it."""
    ordered = values[values >= levels.min()].sort().values
    return len(ordered) - torch.searchsorted(ordered, levels)
