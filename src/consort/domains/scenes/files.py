"""Reading images and dense (per-pixel) targets from files."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consort.domains.scenes.frame import Bytes, Values
from consort.domains.scenes.tasks.dense import IGNORED
from consort.errors import Failure, UsageError

PICTURES = (".png", ".jpg")
"""The suffixes of image files."""


def gathered(names: Sequence[str], read: Callable[[str], dict[str, Values]]) -> dict[str, Tensor]:
    """Reads all images in parallel.

    Args:
        names: The names of the images.
        read: Reads one image: arrays by kind, with the same shapes for every image.

    Returns:
        One tensor of each kind, with one row per image.
    """
    whole = {
        kind: np.empty((len(names), *value.shape), dtype=value.dtype)
        for kind, value in read(names[0]).items()
    }

    def fill(position: int) -> None:
        for kind, value in read(names[position]).items():
            whole[kind][position] = value

    with ThreadPoolExecutor() as pool:  # decoding releases the GIL
        for _ in pool.map(fill, range(len(names))):
            pass
    return {kind: torch.from_numpy(values) for kind, values in whole.items()}


def listed(*lists: Path) -> list[str]:
    """The names in some lists, without repetitions.

    Args:
        *lists: Files with one name per line.

    Returns:
        The names in their order.

    Raises:
        UsageError: If a list is missing.
        Failure: If there is no name in them.
    """
    names: dict[str, None] = {}
    for path in lists:
        if not path.is_file():
            raise UsageError(f"{path} is missing: unpack the complete data set again")
        names |= dict.fromkeys(path.read_text(encoding="utf-8").split())
    if not names:
        raise Failure(f"{lists[0]} lists no images")
    return list(names)


def found(folder: Path, name: str, *suffixes: str) -> Path | None:
    """Looks for the file of an image.

    Args:
        folder: Where to look.
        name: The file's name without suffix.
        *suffixes: The accepted suffixes, in order of preference.

    Returns:
        The file, or None.
    """
    paths = (folder / f"{name}{suffix}" for suffix in suffixes)
    return next((path for path in paths if path.is_file()), None)


def picture(path: Path) -> Bytes:
    """Reads an image as RGB.

    Args:
        path: The file.

    Returns:
        Height x width x 3.

    Raises:
        Failure: If the file is missing or damaged.
    """
    if not path.is_file():
        raise Failure(f"{path} is missing: unpack the complete data set again")
    return np.asarray(_opened(path).convert("RGB"))


def values(path: Path, key: str = "", channels: int = 1) -> Values:
    """Reads the values of all pixels from an image file, a NumPy array or a MATLAB file.

    Args:
        path: The file.
        key: The variable of a MATLAB file.
        channels: The expected number of values per pixel.

    Returns:
        Height x width, or height x width x channels.

    Raises:
        Failure: If the file is damaged or has another number of values per pixel.
    """
    array = np.asarray(_contents(path, key))
    if array.ndim < 2 or array.shape[2:] != (() if channels == 1 else (channels,)):
        shape = "x".join(map(str, array.shape))
        raise Failure(f"{path} is damaged: {channels} per pixel expected, found shape {shape}")
    return array


def strengths(path: Path, key: str = "", channels: int = 1) -> Values:
    """Reads values as fractions: bytes of image files are divided by 255.

    Args:
        path: The file.
        key: The variable of a MATLAB file.
        channels: The expected number of values per pixel.

    Returns:
        As `values`.

    Raises:
        Failure: As `values`.
    """
    found = values(path, key, channels).astype(np.float32)
    return found / 255 if path.suffix in PICTURES else found


def classes(path: Path, labels: Values, number: int) -> Values:
    """Checks class labels.

    Args:
        path: The file they come from, for the error message.
        labels: The label of every pixel.
        number: The number of classes.

    Returns:
        The labels.

    Raises:
        Failure: If a label is neither a class nor `IGNORED`.
    """
    known = labels[labels != IGNORED]
    if known.size and not 0 <= known.min() <= known.max() < number:
        raise Failure(
            f"{path} is damaged: a label from 0 to {number - 1} is expected for every pixel"
        )
    return labels


def matlab(path: Path, key: str) -> Any:
    """Reads one variable of a MATLAB file.

    Args:
        path: The file.
        key: The name of the variable.

    Returns:
        The variable; structures become dictionaries.

    Raises:
        Failure: If the file is damaged or of MATLAB 7.3, which cannot be read.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        return loadmat(path, simplify_cells=True)[key]
    except NotImplementedError as error:
        raise Failure(
            f"{path} is in the format of MATLAB 7.3, which cannot be read: save it with -v7"
        ) from error
    except (KeyError, ValueError, TypeError, OSError, zlib.error, MatReadError) as error:
        raise Failure(
            f"{path} is damaged: a MATLAB file with {key!r} is expected ({error})"
        ) from error


def _contents(path: Path, key: str) -> Any:
    if path.suffix in PICTURES:
        return _opened(path)
    if path.suffix == ".mat":
        return matlab(path, key)
    try:
        return np.load(path)
    except (ValueError, OSError, EOFError) as error:
        raise Failure(f"{path} is damaged: an array is expected ({error})") from error


def _opened(path: Path) -> Any:
    from PIL import Image

    try:
        with Image.open(path) as opened:
            opened.load()
            return opened
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise Failure(f"{path} is damaged: an image is expected ({error})") from error
