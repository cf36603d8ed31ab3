"""Data sets by name, imported only when they are loaded."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from difflib import get_close_matches
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from consort.errors import UsageError

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

_GIVEN = ("seed", "folder")


def load_dataset(name: str, seed: int, folder: Path | None, **options: Any) -> Dataset:
    """Loads or generates a data set; `folder` is where real data sets are looked for."""
    loader = _loader(name)
    parameters = signature(loader).parameters
    given = {"seed": seed, "folder": folder}
    return loader(
        **{key: value for key, value in given.items() if key in parameters},
        **_checked(name, loader, options),
    )


def describe_datasets() -> dict[str, str]:
    """The first line of every loader's docstring, read from its source: nothing is imported."""
    return {name: _first_line(*target.split(":")) for name, target in sorted(DATASETS.items())}


def _loader(name: str) -> Callable[..., Dataset]:
    if name not in DATASETS:
        raise UsageError(f"unknown data set {name!r}{_choices(name, DATASETS)}")
    module, function = DATASETS[name].split(":")
    loader: Callable[..., Dataset] = getattr(importlib.import_module(module), function)
    return loader


def _checked(name: str, loader: Callable[..., Dataset], options: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(loader, include_extras=True)
    allowed: dict[str, Any] = {
        key: (hints[key], ... if parameter.default is Parameter.empty else parameter.default)
        for key, parameter in signature(loader).parameters.items()
        if key not in _GIVEN
    }
    for key in options:
        if key not in allowed:
            raise UsageError(f"data set {name!r} has no option {key!r}{_choices(key, allowed)}")
    try:
        create_model(name, __config__=ConfigDict(strict=True), **allowed)(**options)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].replace("Input should", "should", 1)
        raise UsageError(
            f"data set {name!r}: option {first['loc'][0]!r} {reason}, found {first['input']!r}"
        ) from error
    return options


def _choices(name: str, known: dict[str, Any]) -> str:
    if not known:
        return ": it has none"
    closest = get_close_matches(name, known, 1)
    hint = f": did you mean {closest[0]!r}?" if closest else ";"
    return f"{hint} known are {', '.join(sorted(known))}"


def _first_line(module: str, function: str) -> str:
    spec = find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return (ast.get_docstring(node) or "").partition("\n")[0]
    return ""
