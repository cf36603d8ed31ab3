"""Preprocessing scanned signatures: bright ink on black, centred, resized (after sigver).

sigver is the package of Hafemann et al. (2017).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.page import PAPER, Grey, otsu

Size = tuple[int, int]
"""Height and width."""

BLUR = 2.0
"""The standard deviation, in pixels, of the blur that removes specks."""
BLUR_WHOLE = 600
"""Pages whose longer side is smaller are blurred less, so that thin strokes survive."""


def preprocess(page: Grey, size: Size, canvas: Size | None = None) -> Grey:
    """Extracts the signature from a page of dark ink on paper.

    The page is inverted, paper becomes 0, and the result is centred on a canvas by its centre of
    mass, scaled and cropped. Ink that does not fit on the canvas is cropped.

    Args:
        page: Grey levels of the scanned page.
        size: Height and width of the result.
        canvas: Height and width of the canvas; by default the smallest one with the aspect ratio
            of `size` that fits the ink of this page.

    Returns:
        Bright ink on black; all zeros if the page has no ink.
    """
    threshold = otsu(page)
    if threshold is None:
        return np.zeros(size, dtype=np.uint8)
    rows, columns, middle = ink_box(page, threshold)
    page = page[rows, columns]
    ink = np.where(page > threshold, 0, PAPER - page).astype(np.uint8)
    return fit(pasted(ink, middle, canvas or _own_canvas(ink.shape, middle, size)), size)


def ink_box(page: Grey, threshold: int) -> tuple[slice, slice, Size]:
    """Finds the bounding box of the ink.

    Specks are blurred away first, unless nothing would remain.

    Args:
        page: Grey levels of the scanned page.
        threshold: The lightest grey level that counts as ink.

    Returns:
        The rows and columns of the box, and the centre of mass relative to it.
    """
    from scipy.ndimage import gaussian_filter

    blur = BLUR * min(1, max(page.shape) / BLUR_WHOLE)
    ink = gaussian_filter(page, blur, output=np.float32, mode="nearest") <= threshold
    if not ink.any():
        ink = page <= threshold
    (rows, row), (columns, column) = (_extent(ink.sum(axis)) for axis in (1, 0))
    return rows, columns, (row, column)


def _extent(counts: NDArray[np.int64]) -> tuple[slice, int]:
    used = np.flatnonzero(counts)
    start, stop = int(used[0]), int(used[-1]) + 1
    mean = np.average(np.arange(len(counts)), weights=counts)
    return slice(start, stop), int(mean - start)


def _own_canvas(shape: tuple[int, ...], middle: Size, size: Size) -> Size:
    needed = [2 * max(at + 1, length - at) for length, at in zip(shape, middle, strict=True)]
    scale = max(length / side for length, side in zip(needed, size, strict=True))
    return round(size[0] * scale), round(size[1] * scale)


def pasted(ink: Grey, middle: Size, canvas: Size) -> Grey:
    """Pastes ink onto a canvas, with a given point at its centre or as near as possible.

    Args:
        ink: The ink to paste.
        middle: Row and column of the point.
        canvas: Height and width of the canvas.

    Returns:
        The canvas; ink that is larger than it is cropped.
    """
    places = [
        _place(length, at, room) for length, at, room in zip(ink.shape, middle, canvas, strict=True)
    ]
    result = np.zeros(canvas, dtype=np.uint8)
    (rows, from_rows), (columns, from_columns) = places
    result[rows, columns] = ink[from_rows, from_columns]
    return result


def _place(length: int, middle: int, room: int) -> tuple[slice, slice]:
    """The range on the canvas, and the range of the ink that is pasted there."""
    if length > room:
        cut = (length - room) // 2
        return slice(0, room), slice(cut, cut + room)
    start = min(max(room // 2 - middle, 0), room - length)
    return slice(start, start + length), slice(0, length)


def fit(image: Grey, size: Size) -> Grey:
    """Scales an image, keeping its aspect ratio, until it covers `size`, and crops the centre.

    Args:
        image: Height x width.
        size: Height and width of the result.

    Returns:
        The scaled and cropped image.
    """
    from PIL import Image

    scale = max(side / length for side, length in zip(size, image.shape, strict=True))
    height, width = (
        max(side, round(length * scale)) for side, length in zip(size, image.shape, strict=True)
    )
    scaled = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    return scaled[top : top + size[0], left : left + size[1]]
