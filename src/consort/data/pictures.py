"""Pictures in files, decoded to bytes of one size."""

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
"""Colour or grey, as Pillow calls it: one letter per channel."""


def read_pictures(paths: Sequence[Path], size: int, mode: Mode) -> Bytes:
    """One picture per file, all squeezed to a square: files by channels by `size` by `size`."""
    pictures = np.empty((len(paths), len(mode), size, size), dtype=np.uint8)

    def read(position: int) -> None:
        pictures[position] = _decoded(paths[position], size, mode)

    with ThreadPoolExecutor() as pool:  # decoding leaves the interpreter free
        for _ in pool.map(read, range(len(paths))):
            pass
    return pictures


def resized(pictures: Bytes, size: int) -> Bytes:
    """Grey pictures, squeezed to a square like those in files."""
    from PIL import Image

    return np.stack([_squeezed(Image.fromarray(picture), size) for (picture,) in pictures])


def labelled_files(folders: Sequence[Path], pattern: str) -> tuple[list[Path], Numbers]:
    """The files in some folders, each with the position of its folder."""
    found = [_files(folder, pattern) for folder in folders]
    labels = np.repeat(np.arange(len(found)), [len(files) for files in found])
    return list(chain.from_iterable(found)), labels


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise UsageError(f"{folder} holds no {pattern}: unpack the whole data set once more")
    return files


def _decoded(path: Path, size: int, mode: Mode) -> Bytes:
    from PIL import Image

    try:
        with Image.open(path) as picture:
            whole = picture.convert(mode)
    except FileNotFoundError as error:
        raise Failure(f"{path} is missing: unpack the whole data set once more") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Failure(f"{path} is damaged: a picture is expected ({error})") from error
    return _squeezed(whole, size)


def _squeezed(picture: Image.Image, size: int) -> Bytes:
    from PIL.Image import Resampling

    pixels = np.asarray(picture.resize((size, size), Resampling.BILINEAR))
    return pixels.reshape(size, size, -1).transpose(2, 0, 1)
