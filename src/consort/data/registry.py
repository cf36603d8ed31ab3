"""Data sets by name, imported only when they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, isfunction, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from consort.errors import UsageError
from consort.registry import did_you_mean, first_line, load_object

if TYPE_CHECKING:
    from consort.data.dataset import Dataset

DATASETS = {
    "ag_news": "consort.data.ag_news:ag_news",
    "cifar10": "consort.data.cifar10:cifar10",
    "femnist": "consort.data.femnist:femnist",
    "synthetic_images": "consort.data.synthetic.images:synthetic_images",
    "synthetic_news": "consort.data.synthetic.news:synthetic_news",
    "synthetic_shapes": "consort.data.synthetic.images:synthetic_shapes",
    "synthetic_vectors": "consort.data.synthetic.vectors:synthetic_vectors",
    "synthetic_writers": "consort.data.synthetic.writers:synthetic_writers",
}
"""Name → "module:function". The function takes `seed`, `folder` or both, and its options."""


def load_dataset(name: str, seed: int, folder: Path | None, /, **options: Any) -> Dataset:
    """Loads or generates a data set; `folder` is where real data sets are looked for.

    The name is one of `DATASETS` or the place of a function of your own, as
    `package.module:function` or `file.py:function`; a relative file is looked for in the
    current folder. Like those here, it takes `seed`, `folder`, both or neither, and options
    that are checked by their annotations; it returns a `Dataset`.
    """
    from consort.data.dataset import Dataset

    loader = _loader(name)
    given = {"seed": seed, "folder": folder}
    parameters = dict(signature(loader).parameters)
    wanted = {key: value for key, value in given.items() if parameters.pop(key, None)}
    _check(name, parameters, get_type_hints(loader, include_extras=True), options)
    dataset = loader(**wanted, **options)
    if not isinstance(dataset, Dataset):
        raise UsageError(f"{name} returns a {type(dataset).__name__} where a Dataset is expected")
    return dataset


def describe_datasets() -> dict[str, str]:
    """The first line about every data set."""
    return {name: first_line(place) for name, place in DATASETS.items()}


def _loader(name: str) -> Callable[..., Any]:
    if name not in DATASETS and ":" not in name:
        raise UsageError(f"there is no data set {did_you_mean(name, DATASETS)}")
    loader = load_object(DATASETS.get(name, name))
    if not isfunction(loader):
        raise UsageError(f"{name} is not a function that makes a Dataset")
    return loader


def _check(
    name: str,
    parameters: Mapping[str, Parameter],
    hints: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    for key in options:
        if key not in parameters:
            raise UsageError(f"data set {name!r} has no option {did_you_mean(key, parameters)}")
    for key, parameter in parameters.items():
        if parameter.default is Parameter.empty and key not in options:
            raise UsageError(f"data set {name!r} needs its option {key!r}")
    fields: dict[str, Any] = {key: (hints.get(key, Any), ...) for key in options}
    try:
        create_model(name, __config__=ConfigDict(strict=True), **fields)(**options)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].replace("Input should", "should", 1)
        raise UsageError(
            f"data set {name!r}: option {first['loc'][0]!r} {reason}, found {first['input']!r}"
        ) from error
