"""Reading a scanned page, whatever kind of picture it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from consort.errors import Failure

if TYPE_CHECKING:
    from PIL.Image import Image

Grey = NDArray[np.uint8]
PAPER = 255
SUFFIXES = ("png", "tif", "tiff", "jpg", "jpeg", "bmp")
LARGEST = 64 * 2**20
"""Pixels; a page of A4 has half as many at 600 dots per inch."""


def read_page(path: Path) -> Grey:
    """The grey levels of a picture in a file; a colour is as grey as it is bright."""
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
        raise Failure(f"{path} cannot be read as a picture: replace or remove it") from error


def _grey(picture: Image) -> Grey:
    """Transparent parts are paper; of 16 bits the upper eight are kept."""
    from PIL import Image

    if picture.mode.startswith("I"):
        return (np.asarray(picture).astype(np.int64) >> 8).clip(0, PAPER).astype(np.uint8)
    if picture.has_transparency_data:
        paper = Image.new("RGBA", picture.size, (PAPER, PAPER, PAPER, PAPER))
        picture = Image.alpha_composite(paper, picture.convert("RGBA"))
    return np.asarray(picture.convert("L"))


def otsu(page: Grey) -> int | None:
    """The lightest grey level that is ink, or none if all pixels are alike (Otsu 1979).

    Where the histogram has a gap, every level in it cuts the page in the same way: the middle one
    is taken, so that a page of two levels is cut halfway between them.
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
