"""Heat maps: drawing Gaussians at given pixels, and finding peaks."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def gaussians(places: Tensor, there: Tensor, sigma: float, size: tuple[int, int]) -> Tensor:
    """Draws Gaussians of height 1; where two overlap, the higher value counts.

    Suitable for few positions; see `gaussians_around` for any number.

    Args:
        places: Row and column of each Gaussian, … x number x 2.
        there: Which of them exist.
        sigma: The standard deviation in pixels.
        size: Height and width of the maps.

    Returns:
        Maps, … x height x width.
    """
    far = torch.where(there, 0.0, torch.inf)[..., None]
    down = (torch.arange(size[0]) - places[..., :1]).square() + far
    right = (torch.arange(size[1]) - places[..., 1:]).square()
    rows, columns = (torch.exp(-squares / (2 * sigma**2)) for squares in (down, right))
    highest = torch.zeros(*places.shape[:-2], *size)
    for number in range(places.shape[-2]):
        gaussian = rows[..., number, :, None] * columns[..., number, None, :]
        highest = torch.maximum(highest, gaussian)
    return highest


def gaussians_around(marks: Tensor, sigma: float) -> Tensor:
    """Draws Gaussians around all marks; they end at three sigmas.

    Args:
        marks: Maps with 1 at the marks and 0 elsewhere.
        sigma: The standard deviation in pixels.

    Returns:
        Maps of the same shape.
    """
    return _spread(_spread(marks, sigma).transpose(-1, -2), sigma).transpose(-1, -2)


def _spread(marks: Tensor, sigma: float) -> Tensor:
    """The maximum of the Gaussians of all marks along the last dimension."""
    reach, length = math.ceil(3 * sigma), marks.shape[-1]
    wide, highest = F.pad(marks, (reach, reach)), marks
    for step in range(1, reach + 1):
        sides = torch.maximum(
            wide.narrow(-1, reach - step, length), wide.narrow(-1, reach + step, length)
        )
        highest = torch.maximum(highest, sides * math.exp(-(step**2) / (2 * sigma**2)))
    return highest


def marked(places: Tensor, there: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps with 1 at given pixels and 0 elsewhere.

    Args:
        places: Row and column of each mark, … x number x 2.
        there: Which of them exist.
        size: Height and width of the maps.

    Returns:
        Maps, … x height x width.
    """
    height, width = size
    pixel = torch.where(there, places[..., 0] * width + places[..., 1], 0)
    blank = torch.zeros(*pixel.shape[:-1], height * width)
    marks = blank.scatter_add(-1, pixel, there.to(blank.dtype)).clamp(max=1)
    return marks.view(*marks.shape[:-1], *size)


def peaks(heat: Tensor, reach: int, lowest: float, most: int) -> tuple[Tensor, Tensor]:
    """Finds local maxima.

    Args:
        heat: A map.
        reach: The neighbourhood, in pixels, in which a peak is the highest.
        lowest: The height that a peak must exceed.
        most: The largest number of peaks.

    Returns:
        Heights, highest first, and positions (row, column).
    """
    around = F.max_pool2d(heat[None, None], 2 * reach + 1, 1, reach)[0, 0]
    places = ((heat == around) & (heat > lowest)).nonzero()
    heights = heat[places[:, 0], places[:, 1]]
    order = heights.sort(descending=True, stable=True).indices[:most]
    return heights[order], places[order]
