"""Images with answers for every pixel, in files."""

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


def gathered(names: Sequence[str], read: Callable[[str], dict[str, Values]]) -> dict[str, Tensor]:
    """What is read about every image, in one tensor of each kind."""
    whole = {
        kind: np.empty((len(names), *value.shape), dtype=value.dtype)
        for kind, value in read(names[0]).items()
    }

    def fill(position: int) -> None:
        for kind, value in read(names[position]).items():
            whole[kind][position] = value

    with ThreadPoolExecutor() as pool:  # decoding leaves the interpreter free
        for _ in pool.map(fill, range(len(names))):
            pass
    return {kind: torch.from_numpy(values) for kind, values in whole.items()}


def listed(*lists: Path) -> list[str]:
    """The names in some files, one in a line, each only once."""
    names: dict[str, None] = {}
    for path in lists:
        if not path.is_file():
            raise UsageError(f"{path} is missing: unpack the whole data set once more")
        names |= dict.fromkeys(path.read_text(encoding="utf-8").split())
    if not names:
        raise Failure(f"{lists[0]} lists no image")
    return list(names)


def found(folder: Path, name: str, *suffixes: str) -> Path | None:
    """The file of an image in a folder, if there is one."""
    paths = (folder / f"{name}{suffix}" for suffix in suffixes)
    return next((path for path in paths if path.is_file()), None)


def picture(path: Path) -> Bytes:
    """An image in colour."""
    if not path.is_file():
        raise Failure(f"{path} is missing: unpack the whole data set once more")
    return np.asarray(_opened(path).convert("RGB"))


def values(path: Path, key: str = "", channels: int = 1) -> Values:
    """The answers in a file: numbers of a picture, an array, or what MATLAB calls `key`."""
    array = np.asarray(_contents(path, key))
    if array.ndim < 2 or array.shape[2:] != (() if channels == 1 else (channels,)):
        shape = "x".join(map(str, array.shape))
        raise Failure(f"{path} is damaged: {channels} per pixel expected, found {shape} numbers")
    return array


def strengths(path: Path, key: str = "", channels: int = 1) -> Values:
    """The same as fractions: the bytes of a picture are 255ths."""
    found = values(path, key, channels).astype(np.float32)
    return found / 255 if path.suffix in PICTURES else found


def classes(path: Path, labels: Values, number: int) -> Values:
    """Labels, which must be below the number of classes or ignored."""
    known = labels[labels != IGNORED]
    if known.size and not 0 <= known.min() <= known.max() < number:
        raise Failure(
            f"{path} is damaged: a label from 0 to {number - 1} is expected for every pixel"
        )
    return labels


def matlab(path: Path, key: str) -> Any:
    """One variable of a MATLAB file; its structures are tables."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        return loadmat(path, simplify_cells=True)[key]
    except NotImplementedError as error:
        raise Failure(
            f"{path} is a file of MATLAB 7.3, which is not read here: save it with -v7"
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
        raise Failure(f"{path} is damaged: a picture is expected ({error})") from error
