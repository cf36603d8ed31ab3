"""Things in an image, each with a number: from a map of codes to what is learnt, and back.

A code is `class * NUMBERS + number`; numbers of things begin with 1, and what is no thing has 0.
Pixels that nobody knows have the code `UNKNOWN`. Things are learnt as in Panoptic-DeepLab (Cheng et
al. 2020): a map that is high in their middles, and for every pixel the way to its thing's middle.
"""

from __future__ import annotations

import torch
from torch import Tensor

from consort.domains.scenes.metrics.panoptic import NUMBERS, UNKNOWN
from consort.domains.scenes.tasks.heat import bumps, marked, peaks

_REACH, _LOWEST, _MOST = 3, 0.1, 200  # of middles, as published


def are_things(codes: Tensor) -> Tensor:
    """Pixels of a thing with a number."""
    return (codes % NUMBERS > 0) & (codes < UNKNOWN)


def middles(codes: Tensor, classes: int) -> Tensor:
    """For every pixel of a thing the middle of that thing: two maps, down and right."""
    things, size = are_things(codes), codes.shape[-2:]
    number = torch.where(things, codes, 0).flatten(-2).long()
    down, right = _places(codes)
    values = torch.stack([torch.ones_like(down), down, right]).flatten(-2)
    slots = torch.zeros(*codes.shape[:-2], 3, classes * NUMBERS, dtype=torch.int64)
    where = number[..., None, :].expand(*number.shape[:-1], 3, -1)
    # Whole numbers: the sums are exact in any order.
    sums = slots.scatter_add(-1, where, values.expand_as(where)).gather(-1, where)
    found = sums[..., 1:, :] / sums[..., :1, :]
    return found.view(*found.shape[:-1], *size)


def learnt(codes: Tensor, classes: int, sigma: float) -> tuple[Tensor, Tensor]:
    """The map that is high in the middles of things, and the ways there, down and right."""
    things, centre = are_things(codes), middles(codes, classes)
    pixels = centre.round().long().flatten(-2).transpose(-1, -2)
    marks = marked(pixels, things.flatten(-2), (codes.shape[-2], codes.shape[-1]))
    return bumps(marks, sigma), centre - torch.stack(_places(codes))


def found_things(
    heat: Tensor, ways: Tensor, logits: Tensor, stuff: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes of every pixel of one image, and of every thing in it the code and a score.

    The first `stuff` classes are no things. A pixel of a thing belongs to the middle nearest to
    where its way ends, and a thing has the class of most of its pixels. The score is the height of
    its middle times the mean probability of its class.
    """
    heights, centres = peaks(heat, _REACH, _LOWEST, _MOST)
    kind = logits.argmax(0)
    things = kind >= stuff
    codes = torch.where(things, UNKNOWN, kind * NUMBERS)
    if not len(centres):
        return codes, codes.new_empty(0), heights
    ends = (torch.stack(_places(heat)) + ways)[:, things].T
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
    """Exact ones, so that ties are ties."""
    return torch.cdist(ends, centres.float(), compute_mode="donot_use_mm_for_euclid_dist")


def _places(maps: Tensor) -> tuple[Tensor, Tensor]:
    """How far down and how far right every pixel is."""
    height, width = maps.shape[-2:]
    rows = torch.arange(height)[:, None].expand(height, width)
    columns = torch.arange(width).expand(height, width)
    return rows, columns
