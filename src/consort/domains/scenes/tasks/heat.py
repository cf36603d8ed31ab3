"""Maps that are high where something is: how they are made, and how they are read."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def bells(places: Tensor, there: Tensor, sigma: float, size: tuple[int, int]) -> Tensor:
    """Bell shapes of height 1 at the pixels `places` (… by number by down and right) `there`.

    Where two meet, the higher one counts. For few places; see `bumps` for any number.
    """
    far = torch.where(there, 0.0, torch.inf)[..., None]
    down = (torch.arange(size[0]) - places[..., :1]).square() + far
    right = (torch.arange(size[1]) - places[..., 1:]).square()
    rows, columns = (torch.exp(-squares / (2 * sigma**2)) for squares in (down, right))
    highest = torch.zeros(*places.shape[:-2], *size)
    for number in range(places.shape[-2]):
        bell = rows[..., number, :, None] * columns[..., number, None, :]
        highest = torch.maximum(highest, bell)
    return highest


def bumps(marks: Tensor, sigma: float) -> Tensor:
    """The same around every mark, a 1 among zeros; bells end at three sigmas."""
    return _spread(_spread(marks, sigma).transpose(-1, -2), sigma).transpose(-1, -2)


def _spread(marks: Tensor, sigma: float) -> Tensor:
    """The highest of all bells along the last dimension."""
    reach, length = math.ceil(3 * sigma), marks.shape[-1]
    wide, highest = F.pad(marks, (reach, reach)), marks
    for step in range(1, reach + 1):
        sides = torch.maximum(
            wide.narrow(-1, reach - step, length), wide.narrow(-1, reach + step, length)
        )
        highest = torch.maximum(highest, sides * math.exp(-(step**2) / (2 * sigma**2)))
    return highest


def marked(places: Tensor, there: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps with a 1 at the pixels `places` (… by number by down and right) that are `there`."""
    height, width = size
    pixel = torch.where(there, places[..., 0] * width + places[..., 1], 0)
    blank = torch.zeros(*pixel.shape[:-1], height * width)
    marks = blank.scatter_add(-1, pixel, there.to(blank.dtype)).clamp(max=1)
    return marks.view(*marks.shape[:-1], *size)


def peaks(heat: Tensor, reach: int, lowest: float, most: int) -> tuple[Tensor, Tensor]:
    """Heights, and places (down, right), of pixels that no other within reach is higher than.

    At most so many, the highest first, all higher than `lowest`.
    """
    around = F.max_pool2d(heat[None, None], 2 * reach + 1, 1, reach)[0, 0]
    places = ((heat == around) & (heat > lowest)).nonzero()
    heights = heat[places[:, 0], places[:, 1]]
    order = heights.sort(descending=True, stable=True).indices[:most]
    return heights[order], places[order]
