"""Numbered things in an image: from a map of codes to training targets, and back.

A code is `class * NUMBERS + number`; things are numbered from 1, stuff has 0, and unlabelled pixels
have the code `UNKNOWN`. Things are represented as in Panoptic-DeepLab (Cheng et al. 2020): by a
heat map of their centres, and for every pixel the offset to the centre of its thing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from consort.domains.scenes.metrics.panoptic import NUMBERS, UNKNOWN
from consort.domains.scenes.tasks.heat import gaussians_around, marked, peaks

_REACH, _LOWEST, _MOST = 3, 0.1, 200  # peaks of the heat map, as published


def are_things(codes: Tensor) -> Tensor:
    """Which pixels of `codes` belong to a numbered thing."""
    return (codes % NUMBERS > 0) & (codes < UNKNOWN)


def middles(codes: Tensor, classes: int) -> Tensor:
    """For every pixel of a thing the centre of that thing.

    Args:
        codes: The code of every pixel.
        classes: The number of classes.

    Returns:
        Two maps, row and column of the centre.
    """
    things, size = are_things(codes), codes.shape[-2:]
    number = torch.where(things, codes, 0).flatten(-2).long()
    down, right = _places(codes)
    values = torch.stack([torch.ones_like(down), down, right]).flatten(-2)
    slots = torch.zeros(*codes.shape[:-2], 3, classes * NUMBERS, dtype=torch.int64)
    where = number[..., None, :].expand(*number.shape[:-1], 3, -1)
    # Integers: the sums are exact in any order.
    sums = slots.scatter_add(-1, where, values.expand_as(where)).gather(-1, where)
    found = sums[..., 1:, :] / sums[..., :1, :]
    return found.view(*found.shape[:-1], *size)


def centre_targets(codes: Tensor, classes: int, sigma: float) -> tuple[Tensor, Tensor]:
    """The training targets of things.

    Args:
        codes: The code of every pixel.
        classes: The number of classes.
        sigma: The standard deviation of the heat map in pixels.

    Returns:
        The heat map of centres, and the offsets to them, down and right.
    """
    things, centre = are_things(codes), middles(codes, classes)
    pixels = centre.round().long().flatten(-2).transpose(-1, -2)
    marks = marked(pixels, things.flatten(-2), (codes.shape[-2], codes.shape[-1]))
    return gaussians_around(marks, sigma), centre - torch.stack(_places(codes))


def found_things(
    heat: Tensor, offsets: Tensor, logits: Tensor, stuff: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Decodes the outputs for one image.

    A pixel of a thing belongs to the centre nearest to the end of its offset; a thing has the class
    of most of its pixels. Its score is the height of its centre times the mean probability of its
    class.

    Args:
        heat: The heat map of centres.
        offsets: The offsets, down and right.
        logits: The logits of all classes.
        stuff: The number of classes, the first ones, that are not things.

    Returns:
        The code of every pixel, and the code and score of every thing.
    """
    heights, centres = peaks(heat, _REACH, _LOWEST, _MOST)
    kind = logits.argmax(0)
    things = kind >= stuff
    codes = torch.where(things, UNKNOWN, kind * NUMBERS)
    if not len(centres):
        return codes, codes.new_empty(0), heights
    ends = (torch.stack(_places(heat)) + offsets)[:, things].T
    nearest = _distances(ends, centres).argmin(1)
    cells = nearest * len(logits) + kind[things]
    votes = cells.bincount(minlength=len(centres) * len(logits)).view(len(centres), len(logits))
    winner, size = votes.argmax(1), votes.sum(1)
    numbers = winner * NUMBERS + 1 + torch.arange(len(centres))
    codes[things] = numbers[nearest]
    chances = logits.softmax(0)[:, things].gather(0, winner[nearest][None])[0]
    sums = torch.zeros(len(centres)).index_add(0, nearest, chances)
    return codes, numbers[size > 0], (heights * sums / size)[size > 0]


def _distances(ends: Tensor, centres: Tensor) -> Tensor:
    """Exact distances, so that ties stay ties."""
    return torch.cdist(ends, centres.float(), compute_mode="donot_use_mm_for_euclid_dist")


def _places(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The row and the column of every pixel."""
    height, width = maps.shape[-2:]
    rows = torch.arange(height)[:, None].expand(height, width)
    columns = torch.arange(width).expand(height, width)
    return rows, columns
