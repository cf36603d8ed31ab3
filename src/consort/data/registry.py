"""Data sets by name, imported only when they are loaded."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from consort.core.permission import check_options
from consort.core.plugins import find
from consort.core.validation import checked_options
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.data.dataset import Dataset


def load_dataset(name: str, seed: int, folder: Path | None, /, **options: Any) -> Dataset:
    """Loads or generates a data set.

    All functions that make data sets take `seed`, `folder`, both or neither, and options that are
    checked by their annotations.

    Args:
        name: The name of a data set (`consort list datasets`) or the place of a function of your
            own, as `package.module:function` or `file.py:function` (a file is looked for beside the
            recipe, then in the current folder).
        seed: The seed of generated data.
        folder: Where real data sets are looked for.
        **options: The options of the data set.

    Raises:
        UsageError: If there is no such data set or option, a value is wrong, or the function
            returns neither a `Dataset` nor what `Dataset.of` takes.
        Refused: If somebody else asks for it who may not: see `consort.core.permission`.
    """
    from consort.data.dataset import Dataset

    loader = _loader(name)
    check_options(name, options)
    provided = {"seed": seed, "folder": folder}
    wanted = {key: provided[key] for key in signature(loader).parameters if key in provided}
    dataset = loader(**wanted, **checked_options(f"data set {name!r}", loader, options, provided))
    if isinstance(dataset, Dataset):
        return dataset
    try:
        return Dataset.of(dataset, name=name.rpartition(":")[2])
    except UsageError as error:
        raise UsageError(f"data set {name!r}: {error}") from error


def is_drawn(name: str) -> bool:
    """Whether the data set `name` depends on a seed."""
    return "seed" in signature(_loader(name)).parameters


def _loader(name: str) -> Callable[..., Any]:
    loader = find("datasets", name)
    if not isfunction(loader):
        raise UsageError(f"{name} is not a function that makes a Dataset")
    return loader
