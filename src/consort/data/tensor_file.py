"""A data set in a file of tensors."""

from __future__ import annotations

from pathlib import Path

from consort.core.bounds import LocalFile
from consort.data.dataset import Dataset
from consort.data.examples import Examples


def tensors(folder: Path | None, *, path: LocalFile, targets: tuple[str, ...] = ()) -> Dataset:
    """Tensors by name in an .npz, .safetensors or .pt file; the targets are classes.

    Args:
        folder: The user's data folder, in which `path` is looked for first.
        path: The file.
        targets: The tensors that are targets; by default `target`, `label` or `labels`.

    Returns:
        The data set with one task per target.

    Raises:
        UsageError: If there is no such file or tensor, or targets are no classes.
    """
    below = folder / path if folder else Path(path)
    return Dataset.of(Examples.of(below if below.exists() else Path(path), targets), name="tensors")
