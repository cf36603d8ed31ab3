"""Data sets by name, imported only when they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
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
    """Loads or generates a data set; `folder` is where real data sets are looked for."""
    if name not in DATASETS:
        raise UsageError(f"there is no data set {did_you_mean(name, DATASETS)}")
    loader: Callable[..., Dataset] = load_object(DATASETS[name])
    given = {"seed": seed, "folder": folder}
    parameters = dict(signature(loader).parameters)
    wanted = {key: value for key, value in given.items() if parameters.pop(key, None)}
    _check(name, parameters, get_type_hints(loader, include_extras=True), options)
    return loader(**wanted, **options)


def describe_datasets() -> dict[str, str]:
    """The first line about every data set."""
    return {name: first_line(place) for name, place in DATASETS.items()}


def _check(
    name: str,
    parameters: Mapping[str, Parameter],
    hints: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    for key in options:
        if key not in parameters:
            raise UsageError(f"data set {name!r} has no option {did_you_mean(key, parameters)}")
    fields: dict[str, Any] = {key: (hints[key], parameters[key].default) for key in options}
    try:
        create_model(name, __config__=ConfigDict(strict=True), **fields)(**options)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].replace("Input should", "should", 1)
        raise UsageError(
            f"data set {name!r}: option {first['loc'][0]!r} {reason}, found {first['input']!r}"
        ) from error
