"""Encoders by name, and models built from the tables of a recipe.

An encoder is an `nn.Module` with an attribute `width`, its number of features. The first parameter
of its class is one prepared example, or what its static method `measure` makes of one; the others
are options for recipes, which are checked by their annotations. Plug-ins bring encoders by name
(`consort list models`). A recipe may also name an encoder of your own, as `package.module:Class`
or `file.py:Class` (a file is looked for beside the recipe, then in the current folder); a function
that returns an encoder may be used instead of a class.

An encoder may have a method `decoder` that makes the module between encoder and head of a task;
`width` is then the number of features that the head receives. It may also have a method `head`
that makes the head of a task itself. An encoder of feature maps, for tasks with an output per
pixel, has the attribute `dense = True`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

from consort.core.plugins import entries, find
from consort.core.validation import checked_options
from consort.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from consort.models.multitask import BatchNormPolicy, MultiTaskModel
    from consort.tasks import Task


@dataclass(frozen=True)
class ModelSpec:
    """The name and the checked options of an encoder; equal specs describe equal models.

    Examples:
        >>> from consort import ModelSpec
        >>> spec = ModelSpec.of({"name": "mlp", "hidden": [64, 32]})
        >>> spec.name, spec.options
        ('mlp', (('hidden', (64, 32)),))
    """

    name: str
    """The name of the encoder."""
    options: tuple[tuple[str, Any], ...] = ()
    """Pairs of option and value, with all defaults."""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.options)})"

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> ModelSpec:
        """Checks a recipe's table such as `{name = "mlp", hidden = [64]}`.

        Options that are not given take their defaults.

        Args:
            table: The name of the encoder and its options.

        Raises:
            UsageError: If there is no name, no such encoder or option, or a value is wrong.
        """
        given = dict(table)
        if "name" not in given:
            raise UsageError(f"a model needs a name: one of {', '.join(entries('models'))}")
        name = str(given.pop("name"))
        options = _options(name, given)
        for option, value in options.items():
            if not isinstance(value, Hashable):
                raise UsageError(f"model {name!r}: annotate its option {option!r} as a tuple")
        return cls(name, tuple(options.items()))


def build(
    spec: ModelSpec,
    tasks: Mapping[str, Task],
    example: Tensor,
    seed: int,
    batchnorm: BatchNormPolicy = "average",
) -> MultiTaskModel:
    """Builds a model with one head per task.

    The initial weights of the encoder depend on the seed and the architecture only, those of a head
    or decoder on the seed, the name of the task and the shape. So clients with different tasks
    start from equal encoders.

    Args:
        spec: The encoder.
        tasks: The tasks by name.
        example: One prepared input.
        seed: The seed of the initial weights.
        batchnorm: What happens to the running statistics of BatchNorm: see `MultiTaskModel`.

    Raises:
        UsageError: If the encoder does not suit the example or a task.
    """
    from consort.models.multitask import MultiTaskModel

    with _seeded(seed, "encoder"):
        encoder = _fitting(spec, example)
    heads, decoders = {}, {}
    for name, task in tasks.items():
        _check_fit(spec, encoder, name, task)
        if hasattr(encoder, "decoder"):
            with _seeded(seed, "decoder", name):
                decoders[name] = encoder.decoder()
        with _seeded(seed, "head", name):
            own = hasattr(encoder, "head")
            heads[name] = encoder.head(task) if own else task.head(encoder.width)
    return MultiTaskModel(encoder, heads, decoders, batchnorm)


def parameter_count(module: nn.Module) -> int:
    """The number of trainable values of `module`."""
    return sum(parameter.numel() for parameter in module.parameters())


def _options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    encoder = find("models", name)
    try:
        example, *_ = signature(encoder).parameters
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{name} is not an encoder: a class or a function of an example is expected"
        ) from error
    return checked_options(f"model {name!r}", encoder, given, (example,))


def _fitting(spec: ModelSpec, example: Tensor) -> Any:
    make = find("models", spec.name)
    try:
        measured = make.measure(example) if hasattr(make, "measure") else example
        encoder = make(measured, **dict(spec.options))
    except UsageError as error:
        shape = "x".join(map(str, example.shape))
        kind = str(example.dtype).removeprefix("torch.")
        raise UsageError(
            f"model {spec.name!r} cannot be built for inputs of shape {shape} ({kind}): {error}"
        ) from error
    if not isinstance(getattr(encoder, "width", None), int):
        raise UsageError(f"model {spec.name!r} has no `width`: set it to the number of features")
    return encoder


def _check_fit(spec: ModelSpec, encoder: Any, name: str, task: Task) -> None:
    """Tasks with an output per pixel need encoders of feature maps; other tasks refuse them."""
    pixels, maps = getattr(task, "dense", False), getattr(encoder, "dense", False)
    if pixels and not maps:
        raise UsageError(
            f"model {spec.name!r} cannot learn task {name!r}, which has an output per pixel: "
            "choose a model with feature maps, such as conv_pyramid"
        )
    if maps and not pixels:
        raise UsageError(
            f"model {spec.name!r} makes feature maps, and task {name!r} has one output per "
            "example: choose another model, such as cnn4"
        )


@contextmanager
def _seeded(seed: int, *purpose: str) -> Iterator[None]:
    """Seeds torch's global generator, which initialisation draws from, and restores it."""
    import torch

    from consort.core.randomness import derive

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive(seed, *purpose))
        yield
