"""Any network as a model: layers that compute outputs are heads, the rest is the encoder.

A network is tried on one example. Where a task's outputs are what a linear layer returned, that
layer is the task's head. A head that is found or named is taken out of the network, so that the
network returns the features that the head received. A network without such a layer returns features
already, and heads come from the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor, nn

from consort.core.inputs import Inputs, each, kind_of, tensors_of
from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.tasks import Task

_PREFERRED = ("logits", "features", "pooler_output")
"""The entries of a network's output that are looked at first, besides those named after tasks."""
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Wrapped:
    """A network in the parts of a model."""

    encoder: nn.Module
    """The network without its heads."""
    heads: dict[str, nn.Module]
    """The heads that the network itself has, by task."""
    width: int
    """The number of features that heads receive."""
    channels_last: bool
    """Whether the network computes with images whose channels are stored last."""
    names: dict[str, str]
    """How names of the model begin, and how the same names begin in the network."""


class Trunk(nn.Module):
    """A network that takes named inputs, or returns several values of which one is wanted.

    Args:
        network: The network.
        key: The entry of its output that is returned; None for the output itself.
        named: Whether its inputs are passed by name.
    """

    def __init__(self, network: nn.Module, key: str | int | None, named: bool) -> None:
        super().__init__()
        self.network = network
        self.key = key
        self.named = named

    def forward(self, inputs: Inputs) -> Tensor:
        """The features of a batch of `inputs`."""
        output = _called(self.network, inputs, self.named)
        found: Tensor = output if self.key is None else output[self.key]
        return found


@dataclass
class _Trial:
    """What a network did with a batch of two equal examples, in evaluation mode."""

    outputs: dict[str | int | None, Tensor]
    """The tensors it returned, by their place in its output; None if it returned one tensor."""
    calls: list[tuple[str, Tensor, Tensor]] = field(default_factory=list)
    """Name, input and output of its linear layers, in the order in which they were called."""


def wrap(
    name: str,
    network: nn.Module,
    tasks: Mapping[str, Task],
    example: Inputs,
    named_heads: Mapping[str, str] | None,
) -> Wrapped:
    """Takes a network apart into encoder and heads; the network itself is changed.

    Args:
        name: The name of the model, for messages.
        network: The network.
        tasks: The tasks by name.
        example: One prepared input.
        named_heads: The name of each task's head within the network; empty if the network has no
            heads; None to find them.

    Raises:
        UsageError: If the network does not accept the example, there is no such layer, or the
            network changes what its head returns.
    """
    batch = each(example, lambda tensor: torch.stack([tensor, tensor]))
    named = isinstance(batch, dict) and _takes(network, batch)
    trial = _tried(network, batch, named, f"model {name!r} does not accept inputs of shape")
    if named_heads is None:
        places = _found(trial, tasks)
    else:
        places = {task: _existing(name, network, place) for task, place in named_heads.items()}
    heads = {task: network.get_submodule(place) for task, place in places.items()}
    _refuse_tied(name, network, places)
    bare = nn.Identity() if "" in places.values() else network
    for place in filter(None, places.values()):
        bare.set_submodule(place, nn.Identity())
    without = " and ".join(map(repr, places.values()))
    problem = f"model {name!r} cannot be taken apart at its head {without}, for inputs of shape"
    rest = _tried(bare, batch, named and bare is network, problem)
    key = _key(trial, places, tasks)
    features = rest.outputs[key if key in rest.outputs else next(iter(rest.outputs))]
    _refuse_other_features(name, rest, places)
    if features.ndim != 2:
        raise UsageError(
            f"model {name!r} returns features of shape {kind_of(features[0])} for an example: let "
            "it return one vector per example, or name its head, such as head = 'fc'"
        )
    fitted = {
        task: _fitted(name, places[task], head, tasks[task], features, trial)
        for task, head in heads.items()
    }
    channels_last = _takes_channels_last(bare, batch, named)
    plain = key is None and not named and not hasattr(bare, "width")
    encoder = bare if plain else Trunk(bare, key, named)
    width = features.shape[1]
    object.__setattr__(encoder, "width", width)  # as encoders of Consort say it
    found = {task: head.train() for task, head in fitted.items() if head is not None}
    names = {"encoder." if plain else "encoder.network.": ""}
    for task, head in found.items():
        inside = "" if head is heads[task] else "0."  # behind it, outputs are flattened
        names[f"heads.{task}.{inside}"] = f"{places[task]}." if places[task] else ""
    return Wrapped(encoder.train(), found, width, channels_last, names)


def _called(network: nn.Module, inputs: Inputs, named: bool) -> Any:
    return network(**inputs) if named and isinstance(inputs, dict) else network(inputs)


def _takes(network: nn.Module, inputs: Mapping[str, Tensor]) -> bool:
    """Whether `forward` has a parameter for each of these inputs, as Hugging Face models have."""
    known = signature(network.forward).parameters
    if any(option.kind is Parameter.VAR_KEYWORD for option in known.values()):
        return True
    return all(key in known for key in inputs)


def _tried(network: nn.Module, batch: Inputs, named: bool, problem: str) -> _Trial:
    trial = _Trial({})
    with _watched(network, trial):
        try:
            output = _called(network, batch, named)
        except UsageError:
            raise
        except Exception as error:
            example = each(batch, lambda tensor: tensor[0])
            reason = str(error).partition("\n")[0]
            raise UsageError(
                f"{problem} {kind_of(example)}: {type(error).__name__}: {reason}"
            ) from error
    trial.outputs = _tensors(output)
    if not trial.outputs:
        raise UsageError(
            f"{problem} {kind_of(each(batch, lambda tensor: tensor[0]))}: it returns a "
            f"{type(output).__name__} where a tensor, or a dict or tuple of tensors, is expected"
        )
    return trial


@contextmanager
def _watched(network: nn.Module, trial: _Trial) -> Iterator[None]:
    """Notes what the linear layers of a network receive and return."""

    def note(place: str) -> Any:
        def hook(_: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
            trial.calls.append((place, given[0], made))

        return hook

    handles = [
        layer.register_forward_hook(note(place))
        for place, layer in network.named_modules()
        if isinstance(layer, nn.Linear)
    ]
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(output: Any) -> dict[str | int | None, Tensor]:
    if isinstance(output, Tensor):
        return {None: output}
    pairs: Any = output.items() if isinstance(output, Mapping) else ()
    if isinstance(output, tuple | list):
        pairs = enumerate(output)
    return {key: value for key, value in pairs if isinstance(value, Tensor)}


def _found(trial: _Trial, tasks: Mapping[str, Task]) -> dict[str, str]:
    """The last linear layer that makes the outputs of each task, for the tasks that have one."""
    places: dict[str, str] = {}
    for task in tasks:
        output = trial.outputs[_key_of(trial, task)]
        for place, given, made in reversed(trial.calls):
            if place not in places.values() and _makes(tasks[task], given, made, output):
                places[task] = place
                break
    return places if len(places) == len(tasks) else {}


def _makes(task: Task, given: Tensor, made: Tensor, output: Tensor) -> bool:
    """Whether a layer's result is the output of a network, and of the shape that a task wants."""
    same = made.numel() == output.numel() and torch.equal(made.flatten(), output.flatten())
    picked = made.ndim > output.ndim and made.shape[-1] == output.shape[-1]  # of one token
    wanted = _wanted(task, given[:, 0] if picked else given)
    return (same or picked) and (wanted is None or wanted.numel() == output.numel())


def _wanted(task: Task, features: Tensor) -> Tensor | None:
    """What a head of the task's own would return; None if the task has none."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            head = task.head(features.shape[-1])
        except UsageError:
            return None
        wanted: Tensor = head(features)
    return wanted


def _key_of(trial: _Trial, task: str) -> str | int | None:
    """The entry of an output that belongs to a task."""
    for key in (task, *_PREFERRED):
        if key in trial.outputs:
            return key
    return next(iter(trial.outputs))


def _key(trial: _Trial, places: Mapping[str, str], tasks: Mapping[str, Task]) -> str | int | None:
    """The entry of an output in which the features are, once heads are taken out."""
    if None in trial.outputs or "" in places.values():
        return None
    return _key_of(trial, next(iter(places or tasks)))


def _existing(name: str, network: nn.Module, place: str) -> str:
    known = [found for found, _ in network.named_modules() if found]
    if place and place not in known:
        raise UsageError(f"model {name!r} has no layer {did_you_mean(place, known)}")
    return place


def _refuse_tied(name: str, network: nn.Module, places: Mapping[str, str]) -> None:
    """Refuses heads whose weights are used elsewhere, and so cannot have a role of their own."""
    for place in places.values():
        inside = {id(weight) for weight in network.get_submodule(place).parameters()}
        for other, weight in network.named_parameters(remove_duplicate=False):
            if id(weight) in inside and not f"{other}.".startswith(f"{place}." if place else ""):
                raise UsageError(
                    f"model {name!r}: its head {place!r} shares its weights with {other!r}: name "
                    "another head, or give the head weights of its own"
                )


def _refuse_other_features(name: str, rest: _Trial, places: Mapping[str, str]) -> None:
    if len(places) < 2 or None in rest.outputs:
        return
    first, *others = rest.outputs.values()
    if not any(first.shape == other.shape and torch.equal(first, other) for other in others):
        raise UsageError(
            f"model {name!r}: its heads {' and '.join(map(repr, places.values()))} receive "
            "different features: name the layers at which the network branches"
        )


def _fitted(
    name: str, place: str, head: nn.Module, task: Task, features: Tensor, trial: _Trial
) -> nn.Module | None:
    """A head whose outputs are those of the network; None if it does not suit the task."""
    try:
        with torch.no_grad():
            made: Tensor = head.eval()(features)
    except RuntimeError:
        made = torch.zeros(0)
    wanted = _wanted(task, features)
    if wanted is not None and made.numel() and wanted.numel() != made.numel():
        return None
    same = [output for output in trial.outputs.values() if output.numel() == made.numel()]
    if not any(
        torch.allclose(made.flatten(), output.flatten(), _TOLERANCE, _TOLERANCE, equal_nan=True)
        for output in same
    ):
        raise UsageError(
            f"model {name!r} changes what its head {place!r} returns, such as by a softmax: let it "
            "return the head's outputs as they are"
        )
    flat = made.ndim == 2 and (same[0] if wanted is None else wanted).ndim == 1
    return nn.Sequential(head, nn.Flatten(0)) if flat else head


def _takes_channels_last(network: nn.Module, batch: Inputs, named: bool) -> bool:
    """Whether images may be stored with channels last: `view` refuses them, `flatten` does not."""
    if not any(tensor.ndim == 4 for tensor in tensors_of(batch)):
        return True
    layers = [parameter for parameter in network.parameters() if parameter.ndim == 4]
    plain = [parameter.data for parameter in layers]
    try:
        for parameter in layers:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            _called(network.eval(), each(batch, _channels_last), named)
    except RuntimeError:
        return False
    finally:
        for parameter, data in zip(layers, plain, strict=True):
            parameter.data = data
    return True


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor
