"""Reading from the user's data folder, with errors that name the file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consort.errors import Failure, UsageError


def data_folder(folder: Path | None, name: str, twin: str) -> Path:
    """The data folder, or an error that tells how to name one."""
    if folder is None:
        raise UsageError(
            f"data set {name!r} is read from disk: name its folder with --data or CONSORT_DATA, "
            f"or use {twin!r}, which needs no files"
        )
    return folder


def no_layout(folder: Path, name: str, layouts: tuple[str, ...]) -> UsageError:
    """The error for a folder in which none of the accepted layouts is found."""
    found = "holds none of these" if folder.is_dir() else "does not exist, and should hold"
    return UsageError(f"data set {name!r}: {folder} {found}: {', or '.join(layouts)}")


def read_arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Arrays of an .npz file by name."""
    try:
        with np.load(path) as arrays:
            return [arrays[name] for name in names]
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise Failure(
            f"{path} is damaged: an .npz file with {', '.join(names)} is expected ({error})"
        ) from error
