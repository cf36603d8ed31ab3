"""Reading from the user's data folder, with errors that name the file."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consort.errors import Failure, UsageError


def not_found(name: str, folder: Path | None, layouts: tuple[str, ...], twin: str) -> UsageError:
    """The error for a folder in which none of the accepted layouts is found."""
    accepted = " or ".join(layouts)
    if folder is None:
        return UsageError(
            f"data set {name!r} is read from disk: name the folder that holds {accepted} with "
            f"--data or CONSORT_DATA, or use {twin!r}, which needs no files"
        )
    problem = "does not hold" if folder.is_dir() else "does not exist: it should hold"
    return UsageError(
        f"data set {name!r}: the data folder {folder} {problem} {accepted}; {twin!r} needs no files"
    )


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Arrays of an .npz file by name."""
    try:
        with np.load(path) as arrays:
            return [arrays[name] for name in names]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise Failure(
            f"{path} is damaged: an .npz file with {', '.join(names)} is expected ({error})"
        ) from error


def read_records(path: Path, classes: tuple[int, ...], pixels: int) -> NDArray[np.uint8]:
    """Records of label bytes, each below its number of classes, and of pixels, one per row."""
    length = len(classes) + pixels
    content = np.fromfile(path, dtype=np.uint8)
    records = content[: len(content) // length * length].reshape(-1, length)
    whole = len(content) == records.size > 0
    if not whole or (records[:, : len(classes)] >= classes).any():
        first = " and ".join(f"a class 0 to {number - 1}" for number in classes)
        raise Failure(
            f"{path} is damaged: records of {length} bytes that begin with {first} are expected"
        )
    return records


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts 2 before 10."""
    return [(int(digits or 0), other) for digits, other in re.findall(r"(\d+)|(\D+)", text)]
