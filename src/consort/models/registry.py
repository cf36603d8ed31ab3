"""Models by name or from networks of users, and how they are built.

Every `nn.Module` can be a model: `consort.models.wrapping` takes it apart into encoder and heads.
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

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from consort.core.plugins import entries
from consort.errors import UsageError
from consort.models.factories import as_table, factory, head_places, made, options_of

if TYPE_CHECKING:
    from torch import nn

    from consort.core.inputs import Inputs
    from consort.models.multitask import BatchNormPolicy, MultiTaskModel
    from consort.tasks import Task


@dataclass(frozen=True)
class ModelSpec:
    """An encoder or a network with its checked options; equal specs describe equal models.

    Examples:
        >>> from consort import ModelSpec
        >>> spec = ModelSpec.of({"name": "mlp", "hidden": [64, 32]})
        >>> spec.name, spec.options
        ('mlp', (('hidden', (64, 32)),))
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> str(ModelSpec.of(network, head="2"))
        'Sequential(head=2)'
    """

    name: str
    """The name of the model."""
    options: tuple[tuple[str, Any], ...] = ()
    """Pairs of option and value, with all defaults."""
    heads: tuple[tuple[str, str], ...] | str | None = None
    """Where the heads are within a network: by task, or of the only task; empty if it has none, and
    None to find them."""
    source: nn.Module | Callable[..., Any] | None = None
    """The network, or what makes it; None to find it by its name."""

    def __str__(self) -> str:
        shown = [f"{key}={value}" for key, value in self.options]
        if isinstance(self.heads, str):
            shown.append(f"head={self.heads}")
        elif self.heads is not None:
            shown += [f"heads.{task}={place}" for task, place in self.heads]
        return f"{self.name}({', '.join(shown)})"

    @property
    def is_own(self) -> bool:
        """Whether a user brings it, and not Consort or a plug-in."""
        return self.source is not None or ":" in self.name

    @classmethod
    def of(cls, model: Any, /, **options: Any) -> ModelSpec:
        """Checks a recipe's table such as `{name = "mlp", hidden = [64]}`, or takes a network.

        Options that are not given take their defaults. If the model has no options of these names,
        `head` names the layer of a network that computes the outputs of its only task, or is
        `False` for a network that returns features, and `heads` names one layer per task.

        Args:
            model: A table with a name and options; a name; an `nn.Module`, whose weights are the
                initial weights; or a class or function that makes an `nn.Module`, which is called
                when weights are drawn. A first parameter that has no default and is not an option
                receives one prepared example. A config of `transformers` stands for its model.
            **options: Options, in addition to those of a table.

        Raises:
            UsageError: If there is no name, no such encoder or option, or a value is wrong.
        """
        if isinstance(model, ModelSpec):
            return model
        given = as_table(model) | options
        if "name" not in given:
            raise UsageError(f"a model needs a name: one of {', '.join(entries('models'))}")
        name, source, make = factory(given.pop("name"))
        heads = head_places(name, make, given)
        return cls(name, options_of(name, make, given), heads, source)


def build(
    spec: ModelSpec,
    tasks: Mapping[str, Task],
    example: Inputs,
    seed: int,
    batchnorm: BatchNormPolicy = "average",
    redrawn: bool = False,
) -> MultiTaskModel:
    """Builds a model with one head per task.

    The initial weights of the encoder depend on the seed and the architecture only, those of a head
    or decoder on the seed, the name of the task and the shape. So clients with different tasks
    start from equal encoders. A network's own heads are drawn together with it. A network that was
    handed in keeps its weights; it is copied.

    Args:
        spec: The encoder or network.
        tasks: The tasks by name.
        example: One prepared input.
        seed: The seed of the initial weights.
        batchnorm: What happens to the running statistics of BatchNorm: see `MultiTaskModel`.
        redrawn: Whether other than the usual initial weights are wanted.

    Raises:
        UsageError: If the encoder does not suit the example or a task, or the network was handed in
            and other weights than its own are wanted.
    """
    from consort.models.multitask import MultiTaskModel

    with _seeded(seed, "encoder"):
        encoder = made(spec, example, redrawn)
        if spec.heads is not None or not isinstance(getattr(encoder, "width", None), int):
            return _wrapped(spec, encoder, tasks, example, seed, batchnorm)
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


def _wrapped(
    spec: ModelSpec,
    network: nn.Module,
    tasks: Mapping[str, Task],
    example: Inputs,
    seed: int,
    batchnorm: BatchNormPolicy,
) -> MultiTaskModel:
    from consort.models.multitask import MultiTaskModel
    from consort.models.wrapping import wrap

    parts = wrap(spec.name, network, tasks, example, _places(spec, tasks))
    heads = {}
    for name, task in tasks.items():
        if name not in parts.heads:
            with _seeded(seed, "head", name):
                parts.heads[name] = task.head(parts.width)
        heads[name] = parts.heads[name]
    model = MultiTaskModel(parts.encoder, heads, None, batchnorm, parts.channels_last)
    model.original_names = parts.names
    return model


def _places(spec: ModelSpec, tasks: Mapping[str, Task]) -> dict[str, str] | None:
    """The layers that are named as heads, by task."""
    if spec.heads is None:
        return None
    if isinstance(spec.heads, str):
        if len(tasks) > 1:
            raise UsageError(
                f"model {spec.name!r}: head = {spec.heads!r} names one head for the tasks "
                f"{', '.join(tasks)}: name one for each, such as heads = "
                f"{{ {next(iter(tasks))} = {spec.heads!r} }}"
            )
        return dict.fromkeys(tasks, spec.heads)
    return {task: place for task, place in spec.heads if task in tasks}


def parameter_count(module: nn.Module) -> int:
    """The number of trainable values of `module`."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


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
