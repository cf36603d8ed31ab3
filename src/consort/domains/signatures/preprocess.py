"""From a scanned page to bright ink on black, centred and of one size (after Hafemann's sigver)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.page import PAPER, Grey, otsu

Size = tuple[int, int]
"""Height and width."""

BLUR = 2.0
BLUR_WHOLE = 600
"""Pages whose longer side has fewer pixels are blurred less, or thin strokes would vanish."""


def preprocess(page: Grey, size: Size, canvas: Size | None = None) -> Grey:
    """The signature on a page of dark ink: inverted, without paper, scaled and cropped to `size`.

    Its centre of mass comes to the middle of a canvas of the given size; what is larger than the
    canvas is cropped. Without one each page has its own: the smallest of the shape of `size` that
    holds all. A page without ink gives zeros.
    """
    threshold = otsu(page)
    if threshold is None:
        return np.zeros(size, dtype=np.uint8)
    rows, columns, middle = ink_box(page, threshold)
    page = page[rows, columns]
    ink = np.where(page > threshold, 0, PAPER - page).astype(np.uint8)
    return fit(pasted(ink, middle, canvas or _own_canvas(ink.shape, middle, size)), size)


def ink_box(page: Grey, threshold: int) -> tuple[slice, slice, Size]:
    """Rows and columns with ink, and the ink's centre of mass from their beginning.

    Specks are blurred away first, unless that leaves nothing.
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
    """The ink with this point of it in the middle of a canvas, or as near as there is room."""
    places = [
        _place(length, at, room) for length, at, room in zip(ink.shape, middle, canvas, strict=True)
    ]
    result = np.zeros(canvas, dtype=np.uint8)
    (rows, from_rows), (columns, from_columns) = places
    result[rows, columns] = ink[from_rows, from_columns]
    return result


def _place(length: int, middle: int, room: int) -> tuple[slice, slice]:
    """Where on the canvas, and what of the ink: all that fits, else the middle part of it."""
    if length > room:
        cut = (length - room) // 2
        return slice(0, room), slice(cut, cut + room)
    start = min(max(room // 2 - middle, 0), room - length)
    return slice(start, start + length), slice(0, length)


def fit(image: Grey, size: Size) -> Grey:
    """The image scaled without stretching until it covers `size`, and the middle of that."""
    from PIL import Image

    scale = max(side / length for side, length in zip(size, image.shape, strict=True))
    height, width = (
        max(side, round(length * scale)) for side, length in zip(size, image.shape, strict=True)
    )
    scaled = np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR))
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    return scaled[top : top + size[0], left : left + size[1]]
