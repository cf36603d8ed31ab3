"""Columns of values as tensors: dicts, data frames, Hugging Face data sets and files of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consort.core.inputs import Inputs
from consort.core.registry import did_you_mean
from consort.data.examples import Examples
from consort.errors import Failure, UsageError

TARGET = "target"
"""The name of a single target, until a task gives it another one."""
_USUAL = (TARGET, "label", "labels")
"""The names under which a single target is looked for."""
FILES = (".npz", ".safetensors", ".pt")
"""The files of tensors that can be read."""


def columns_of(data: Any) -> dict[str, Any] | None:
    """The columns of a dict, a pandas or polars frame or a Hugging Face data set, or None."""
    if isinstance(data, Mapping):
        return dict(data)
    names = getattr(data, "column_names", None)
    if isinstance(names, list) and hasattr(data, "with_format"):  # Hugging Face
        arrays = data.with_format("numpy")
        return {name: arrays[name] for name in names}
    names = getattr(data, "columns", None)
    if names is None or not hasattr(data, "to_numpy"):
        return None
    return {str(name): data[name].to_numpy() for name in names}


def from_columns(columns: Mapping[str, Any], targets: Sequence[str] = ()) -> Examples:
    """Examples from columns of equal length.

    Args:
        columns: The columns by name. Numbers become one row of inputs per example; columns with
            several values per example become inputs by name, unless there is only one of them.
        targets: The columns that are targets; by default the one with a usual name.

    Raises:
        UsageError: If there is no such column, or a column does not hold numbers.
    """
    chosen = {name: name for name in targets}
    if not chosen:
        usual = next((name for name in _USUAL if name in columns), None)
        if usual is None:
            raise UsageError(
                f"the data have the columns {', '.join(columns)}: say which are targets, such as "
                f"targets = {[TARGET, *columns][-1]!r}"
            )
        chosen = {TARGET: usual}
    for column in chosen.values():
        if column not in columns:
            raise UsageError(f"the data have no column {did_you_mean(column, columns)}")
    rest = {
        name: as_tensor(values, f"column {name!r}")
        for name, values in columns.items()
        if name not in chosen.values()
    }
    found = {
        name: as_target(columns[column], f"column {column!r}") for name, column in chosen.items()
    }
    return Examples(_inputs(rest), found)


def _inputs(columns: dict[str, Tensor]) -> Inputs:
    if not columns:
        raise UsageError("the data have targets only: add at least one column of inputs")
    if all(column.ndim == 1 for column in columns.values()):
        return torch.stack([column.float() for column in columns.values()], 1)
    return next(iter(columns.values())) if len(columns) == 1 else columns


def as_tensor(values: Any, what: str) -> Tensor:
    """Numbers as a tensor; those of arrays in double precision become single precision.

    Args:
        values: A tensor, an array, or nested lists.
        what: What they are, for messages.

    Raises:
        UsageError: If they are not numbers, or rows differ in length.
    """
    if isinstance(values, Tensor):
        return values
    try:
        array = np.asarray(values)
    except ValueError as error:  # numpy's word for rows of different lengths
        raise UsageError(f"{what} has rows of different lengths: pad them to one length") from error
    if array.dtype == object and len(array) and all(isinstance(row, np.ndarray) for row in array):
        return as_tensor([row.tolist() for row in array], what)
    if array.dtype.kind not in "biuf":
        raise UsageError(
            f"{what} holds {_kind(array)}: turn it into numbers first, or leave it out"
        )
    if array.dtype.kind == "f" and array.dtype != np.float32:
        array = array.astype(np.float32)
    return torch.from_numpy(array.copy())


def as_target(values: Any, what: str) -> Tensor:
    """The same as `as_tensor`, with whole numbers and truth values as int64."""
    tensor = as_tensor(values, what)
    return tensor if tensor.is_floating_point() else tensor.to(torch.int64)


def _kind(array: np.ndarray[Any, Any]) -> str:
    if array.dtype.kind in "US":
        return "text"
    return type(array.flat[0]).__name__ if array.size else str(array.dtype)


def read_columns(path: Path) -> dict[str, Any]:
    """Reads a file of named tensors.

    Args:
        path: An .npz file of arrays, or a .safetensors or .pt file of tensors.

    Raises:
        UsageError: If the file does not exist or is of another kind.
        Failure: If it is damaged, or contains other things than tensors.
    """
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    if path.suffix not in FILES:
        raise UsageError(f"{path}: a file of tensors ends in {', '.join(FILES)}")
    try:
        found = _READERS[path.suffix](path)
    except Exception as error:  # readers of damaged files raise almost anything
        reason = str(error).partition("\n")[0]
        raise Failure(f"{path} cannot be read as a file of tensors: {reason}") from error
    if not isinstance(found, Mapping):
        raise Failure(f"{path} holds a {type(found).__name__} where a dict of tensors is expected")
    return dict(found)


def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays.items())


def _safetensors(path: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(path)


def _tensors(path: Path) -> Any:
    return torch.load(path, weights_only=True)


_READERS = {".npz": _arrays, ".safetensors": _safetensors, ".pt": _tensors}
