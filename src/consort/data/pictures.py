"""Image files, decoded to bytes and resized to one size."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from consort.errors import Failure, UsageError

if TYPE_CHECKING:
    from PIL import Image

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Mode = Literal["RGB", "L"]
"""Colour or grey, as in Pillow; one letter per channel."""


def read_pictures(paths: Sequence[Path], size: int, mode: Mode) -> Bytes:
    """Reads image files and resizes them to squares, ignoring the aspect ratio.

    Args:
        paths: The files.
        size: The side of the squares in pixels.
        mode: Colour or grey.

    Returns:
        Images of shape files x channels x `size` x `size`.

    Raises:
        Failure: If a file is missing or damaged.
    """
    pictures = np.empty((len(paths), len(mode), size, size), dtype=np.uint8)

    def read(position: int) -> None:
        pictures[position] = _decoded(paths[position], size, mode)

    with ThreadPoolExecutor() as pool:  # decoding releases the GIL
        for _ in pool.map(read, range(len(paths))):
            pass
    return pictures


def resized(pictures: Bytes, size: int) -> Bytes:
    """Resizes grey images to squares, ignoring the aspect ratio.

    Args:
        pictures: Images with one channel, count x 1 x height x width.
        size: The side of the squares in pixels.

    Returns:
        Images of shape count x 1 x `size` x `size`.
    """
    from PIL import Image

    return np.stack([_square(Image.fromarray(picture), size) for (picture,) in pictures])


def labelled_files(folders: Sequence[Path], pattern: str) -> tuple[list[Path], Numbers]:
    """Lists the files of several folders, one folder per class.

    Args:
        folders: The folder of each class.
        pattern: The glob pattern of the files.

    Returns:
        The files, and for each file the position of its folder.

    Raises:
        UsageError: If a folder has no such file.
    """
    found = [_files(folder, pattern) for folder in folders]
    labels = np.repeat(np.arange(len(found)), [len(files) for files in found])
    return list(chain.from_iterable(found)), labels


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise UsageError(f"{folder} contains no {pattern}: unpack the complete data set again")
    return files


def _decoded(path: Path, size: int, mode: Mode) -> Bytes:
    from PIL import Image

    try:
        with Image.open(path) as picture:
            whole = picture.convert(mode)
    except FileNotFoundError as error:
        raise Failure(f"{path} is missing: unpack the complete data set again") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Failure(f"{path} is damaged: an image is expected ({error})") from error
    return _square(whole, size)


def _square(picture: Image.Image, size: int) -> Bytes:
    from PIL.Image import Resampling

    pixels = np.asarray(picture.resize((size, size), Resampling.BILINEAR))
    return pixels.reshape(size, size, -1).transpose(2, 0, 1)
