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
    """Builds the error for a folder that contains none of the accepted layouts.

    Args:
        name: The data set.
        folder: The user's data folder; None if none is configured.
        layouts: The accepted layouts, as paths below the folder.
        twin: The synthetic data set that can be used instead.

    Returns:
        The error to raise.
    """
    accepted = " or ".join(layouts)
    if folder is None:
        return UsageError(
            f"data set {name!r} is read from disk: set --data or CONSORT_DATA to the folder that "
            f"contains {accepted}, or use {twin!r}, which needs no files"
        )
    problem = "does not contain" if folder.is_dir() else "does not exist: it should contain"
    return UsageError(
        f"data set {name!r}: the data folder {folder} {problem} {accepted}; {twin!r} needs no files"
    )


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Reads arrays from an .npz file.

    Args:
        path: The file.
        *names: The names of the arrays.

    Returns:
        The arrays in the order of the names.

    Raises:
        Failure: If the file is damaged or an array is missing.
    """
    try:
        with np.load(path) as arrays:
            return [arrays[name] for name in names]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise Failure(
            f"{path} is damaged: an .npz file with {', '.join(names)} is expected ({error})"
        ) from error


def read_records(path: Path, classes: tuple[int, ...], pixels: int) -> NDArray[np.uint8]:
    """Reads fixed-length binary records of label bytes followed by pixels.

    Args:
        path: The file.
        classes: For each label byte of a record the number of classes.
        pixels: The number of pixel bytes of a record.

    Returns:
        The bytes, one record per row.

    Raises:
        Failure: If the file has an incomplete record or a label out of range.
    """
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
    """A sort key for `text` that orders numbers by value: 2 before 10."""
    return [(int(digits or 0), other) for digits, other in re.findall(r"(\d+)|(\D+)", text)]
