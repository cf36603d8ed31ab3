"""Reading scanned pages from image files of any common format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consort.errors import Failure

if TYPE_CHECKING:
    from PIL.Image import Image

Grey = NDArray[np.uint8]
"""Grey levels from 0, black, to 255, white."""
PAPER = 255
"""The grey level of blank paper."""
SUFFIXES = ("png", "tif", "tiff", "jpg", "jpeg", "bmp")
"""The image formats that are read."""
LARGEST = 64 * 2**20
"""The largest number of pixels; an A4 page at 600 dpi has half as many."""


def read_page(path: Path) -> Grey:
    """Reads an image file as grey levels; colours are converted by their luminance.

    Args:
        path: The file.

    Returns:
        Height x width.

    Raises:
        Failure: If the file does not exist, is not an image, or has too many pixels.
    """
    from PIL import Image

    try:
        with Image.open(path) as picture:
            if picture.width * picture.height > LARGEST:
                raise Image.DecompressionBombError
            return _grey(picture)
    except Image.DecompressionBombError as error:
        raise Failure(f"{path} has more than {LARGEST} pixels: scale it down") from error
    except FileNotFoundError as error:
        raise Failure(f"{path} does not exist") from error
    except Exception as error:  # decoders of damaged files raise almost anything
        raise Failure(f"{path} cannot be read as an image: replace or remove it") from error


def _grey(picture: Image) -> Grey:
    """Transparent pixels become paper; images of 16 bits keep the upper eight."""
    from PIL import Image

    if picture.mode.startswith("I"):
        return (np.asarray(picture).astype(np.int64) >> 8).clip(0, PAPER).astype(np.uint8)
    if picture.has_transparency_data:
        paper = Image.new("RGBA", picture.size, (PAPER, PAPER, PAPER, PAPER))
        picture = Image.alpha_composite(paper, picture.convert("RGBA"))
    return np.asarray(picture.convert("L"))


def otsu(page: Grey) -> int | None:
    """Otsu's threshold between ink and paper (Otsu 1979).

    If the histogram has a gap, all levels in the gap separate the page equally: the middle one is
    returned, so that a page of two levels is separated halfway between them.

    Args:
        page: The grey levels.

    Returns:
        The lightest grey level that counts as ink; None if all pixels are equal.
    """
    counts = np.bincount(page.ravel(), minlength=256)
    if counts.max() == page.size:
        return None
    dark, sums = np.cumsum(counts), np.cumsum(counts * np.arange(256.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        light = page.size - dark
        between = dark * light * (sums / dark - (sums[-1] - sums) / light) ** 2
    first = int(np.nanargmax(between))
    last = int(np.searchsorted(dark, dark[first], side="right")) - 1
    return (first + last) // 2
