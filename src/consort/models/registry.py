"""The encoders by name, and models built from what a recipe says about them."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from consort.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from consort.models.multitask import BatchNormPolicy, MultiTaskModel
    from consort.tasks import Task

ENCODERS = {
    "cnn4": "consort.models.cnn4:Cnn4",
    "mlp": "consort.models.mlp:Mlp",
    "resnet": "consort.models.resnet:ResNet",
    "textcnn": "consort.models.textcnn:TextCnn",
}
"""Where each encoder lives.

An encoder is an `nn.Module` with `width`, its number of features. What its static method
`measure` makes of an example is its first parameter; the others are options for recipes.
"""


@dataclass(frozen=True)
class ModelSpec:
    """An encoder's name and options, as checked values that can be compared and hashed."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.options)})"

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> ModelSpec:
        """Checks a recipe's table such as `{name = "mlp", hidden = [64]}`.

        Options that are not given take their defaults, so that equal specs mean equal models.
        """
        given = dict(table)
        if "name" not in given:
            raise UsageError(f"a model needs a name: one of {', '.join(ENCODERS)}")
        name = str(given.pop("name"))
        if name not in ENCODERS:
            raise UsageError(f"there is no model {name!r}: {_suggestion(name, ENCODERS)}")
        encoder = _load(name)
        defaults = _defaults(encoder)
        for option in given:
            if option not in defaults:
                hint = _suggestion(option, defaults)
                raise UsageError(f"model {name!r} has no option {option!r}: {hint}")
        types = get_type_hints(encoder.__init__, include_extras=True)
        checked = {key: _checked(name, key, types[key], value) for key, value in given.items()}
        return cls(name, tuple((defaults | checked).items()))


def describe_models() -> dict[str, str]:
    """The first line about every encoder, read from its source because importing is slow."""
    return {name: _first_line(place) for name, place in ENCODERS.items()}


def build(
    spec: ModelSpec,
    tasks: Mapping[str, Task],
    example: Tensor,
    seed: int,
    batchnorm: BatchNormPolicy = "average",
) -> MultiTaskModel:
    """A model for inputs like `example` (one prepared input) with one head per task.

    The encoder's weights depend on the seed and the architecture only, a head's on the seed,
    the task's name and the head's shape: clients with other tasks start from equal encoders.
    """
    from consort.models.multitask import MultiTaskModel

    with _seeded(seed, "encoder"):
        encoder = _fitting(spec, example)
    heads = {}
    for name, task in tasks.items():
        with _seeded(seed, "head", name):
            heads[name] = task.head(encoder.width)
    return MultiTaskModel(encoder, heads, batchnorm=batchnorm)


def parameter_count(module: nn.Module) -> int:
    """How many numbers a module learns."""
    return sum(parameter.numel() for parameter in module.parameters())


def _load(name: str) -> Any:
    module, _, encoder = ENCODERS[name].partition(":")
    return getattr(importlib.import_module(module), encoder)


def _defaults(encoder: Any) -> dict[str, Any]:
    _measured, *options = inspect.signature(encoder).parameters.values()
    return {option.name: option.default for option in options}


def _suggestion(word: str, choices: Collection[str]) -> str:
    closest = get_close_matches(word, choices, n=1, cutoff=0)
    return f"did you mean {closest[0]!r} (of {', '.join(choices)})?" if closest else "it takes none"


def _checked(model: str, option: str, kind: Any, value: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    try:
        # As JSON, because a strict check of Python values refuses a list where a tuple is meant.
        text = to_json(value, inf_nan_mode="null")
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise UsageError(
            f"model {model!r} cannot have {option} = {value!r}: {reason[0].lower()}{reason[1:]}"
        ) from error


def _fitting(spec: ModelSpec, example: Tensor) -> Any:
    encoder = _load(spec.name)
    try:
        return encoder(encoder.measure(example), **dict(spec.options))
    except UsageError as error:
        shape = "x".join(map(str, example.shape))
        kind = str(example.dtype).removeprefix("torch.")
        raise UsageError(
            f"model {spec.name!r} cannot be built for inputs of shape {shape} ({kind}): {error}"
        ) from error


@contextmanager
def _seeded(seed: int, *purpose: str) -> Iterator[None]:
    """Initialisation draws from torch's global generator: it is lent, and given back as it was."""
    import torch

    from consort.randomness import derive

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield


def _first_line(place: str) -> str:
    module, _, encoder = place.partition(":")
    found = find_spec(module)
    source = Path(found.origin).read_text("utf-8") if found and found.origin else ""
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    docstrings = (ast.get_docstring(node) for node in classes if node.name == encoder)
    return (next(docstrings, None) or "").partition("\n")[0]
