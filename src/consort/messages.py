"""What crosses the wire, and how it is written down: tensors and plain values, no pickle."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from consort.aggregation.low_rank import expected_shape
from consort.errors import ClientFailed, NoReplies, Refused, UsageError
from consort.params import Params, mean

Payload = dict[str, Any]
NamedTensor = tuple[str, Tensor]
Average = Callable[[Sequence[Params], Sequence[float] | None], Params]

HIDDEN_AMONG = "hidden_among"
"""In the payload of a call whose answer is to be masked: the clients that mask together."""
EXCHANGES = ("exchange_keys", "exchange_shares", "open_shares")
"""Calls around it, which no algorithm makes."""

_average: ContextVar[Average] = ContextVar("average", default=mean)


@dataclass(frozen=True, slots=True)
class Call:
    """One question to one client.

    `step` counts the questions of this round and orders what clients write down; `turn` counts
    those with the same method and is what randomness depends on. What a client does while it
    is only evaluated is not kept.
    """

    client: str
    method: str
    round: int
    step: int
    turn: int
    payload: Payload
    evaluation: bool = False

    @property
    def stamp(self) -> tuple[int, int]:
        """When in the run this is; what the client remembers is written under it."""
        return self.round, self.step

    @property
    def before(self) -> tuple[int, int]:
        """The client knows what it wrote before this time; evaluated, all of this round."""
        return (self.round + 1, 0) if self.evaluation else self.stamp

    @property
    def header(self) -> list[Any]:
        """All but the payload, to be sent beside it: see `from_header`."""
        return [self.client, self.method, self.round, self.step, self.turn, self.evaluation]

    @classmethod
    def from_header(cls, header: Sequence[Any], payload: Payload) -> Call:
        """The call with this header and payload."""
        client, method, round_, step, turn, evaluation = header
        return cls(client, method, round_, step, turn, payload, evaluation)


@dataclass(frozen=True)
class Reply:
    """One client's answer, or the error in its place."""

    client: str
    content: Payload = field(default_factory=dict)
    error: ClientFailed | None = None
    seconds: float = 0.0
    flops: int = 0
    """Operations of the call, if they were counted."""

    @cached_property
    def tensors(self) -> list[NamedTensor]:
        """What `tensors_in` finds in the content, looked for once."""
        return tensors_in(self.content)


def common_keys(calls: Sequence[Call]) -> set[str]:
    """The entries of the payload that are the same object for every client."""
    if not calls:
        return set()
    first = calls[0].payload
    return {
        key for key, value in first.items() if all(call.payload.get(key) is value for call in calls)
    }


class Each(dict[str, Any]):
    """A value that differs per client, given to `Clients.ask` in the place of one value."""


@dataclass(frozen=True)
class Sealed(Mapping[str, Any]):
    """Answers of which only means are known; it stands in the place of every one of them."""

    algorithm: str
    clients: tuple[str, ...]
    weights: Mapping[str, str | None]
    """What every mean is weighted by, under the key of the mean."""
    means: Mapping[str, Params]

    def mean(self, key: str, weight: object, clients: Sequence[str]) -> Params:
        """The mean over all who answered."""
        known = key in self.means and weight == self.weights[key]
        if not known or tuple(clients) != self.clients:
            raise self._hidden(f"another mean of {key!r} than the one it has declared")
        return self.means[key]

    def __getitem__(self, key: str) -> Any:
        raise self._hidden(f"{key!r} of single clients")

    def __iter__(self) -> Iterator[str]:
        raise self._hidden("the answers of single clients")

    def __len__(self) -> int:
        raise self._hidden("the answers of single clients")

    def _hidden(self, what: str) -> UsageError:
        return UsageError(
            f"{self.algorithm} needs {what}, which secure aggregation hides: choose an algorithm "
            "that needs only means, such as fedavg, or remove [secure]"
        )


class Replies(Mapping[str, Payload]):
    """The answers that came, in client order."""

    def __init__(self, contents: Mapping[str, Payload]) -> None:
        self._contents = dict(sorted(contents.items()))

    def __getitem__(self, client: str) -> Payload:
        return self._contents[client]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def each(self, key: str) -> Each:
        """One entry of every answer, by client."""
        return Each({client: content[key] for client, content in self._contents.items()})

    def mean(self, key: str, weight: str | Mapping[str, float] | None = None) -> Params:
        """The mean of the `Params` under a key, weighted by another entry or by client."""
        if not self._contents:
            raise NoReplies(f"no client answered, so there is no mean of {key!r}")
        first = next(iter(self._contents.values()))
        if isinstance(first, Sealed):
            return first.mean(key, weight, tuple(self))
        weights = self.each(weight) if isinstance(weight, str) else weight
        return _average.get()(
            list(self.each(key).values()),
            None if weights is None else [float(weights[client]) for client in self],
        )


@contextmanager
def averaging(rule: Average) -> Iterator[list[int]]:
    """While this lasts, a rule takes the place of the mean in every `Replies.mean`.

    Yields a list of how many were averaged, one number for every time.
    """
    taken: list[int] = []

    def noted(items: Sequence[Params], weights: Sequence[float] | None) -> Params:
        taken.append(len(items))
        return rule(items, weights)

    token = _average.set(noted)
    try:
        yield taken
    finally:
        _average.reset(token)


def pack(value: Any, tensors: list[Tensor]) -> Any:
    """Turns a value into JSON, with every tensor replaced by its place in `tensors`."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Params):
        return {"params": [[name, pack(t, tensors)["tensor"]] for name, t in value.items()]}
    if isinstance(value, Mapping):
        return {"map": [[_key(k), pack(v, tensors)] for k, v in value.items()]}
    if isinstance(value, list):
        return [pack(item, tensors) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(item, tensors) for item in value]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"record": type(value).__name__, "fields": pack(entries, tensors)}
    raise _unsendable(value)


def unpack(skeleton: Any, tensors: Sequence[Tensor], records: Mapping[str, type] = {}) -> Any:
    """The inverse of `pack`; only the dataclasses in `records` are ever made."""
    if isinstance(skeleton, list):
        return [unpack(item, tensors, records) for item in skeleton]
    if not isinstance(skeleton, dict):
        return skeleton
    match skeleton:
        case {"tensor": int(index)}:
            return tensors[index]
        case {"params": list(entries)}:
            return Params({name: tensors[index] for name, index in entries})
        case {"map": list(entries)}:
            return {key: unpack(value, tensors, records) for key, value in entries}
        case {"tuple": list(items)}:
            return tuple(unpack(item, tensors, records) for item in items)
        case {"record": str(name), "fields": entries} if name in records:
            return records[name](**unpack(entries, tensors, records))
    raise Refused("a message holds something that is neither a tensor nor a plain value")


def encode(value: Any) -> bytes:
    """Any payload or state as bytes: a safetensors file whose metadata holds the rest."""
    tensors: list[Tensor] = []
    skeleton = json.dumps(pack(value, tensors), separators=(",", ":"))
    named = {str(index): tensor.contiguous() for index, tensor in enumerate(tensors)}
    # Tensors that share memory are refused by safetensors, so each goes in once by its own copy.
    if len({tensor.untyped_storage().data_ptr() for tensor in named.values()}) < len(named):
        named = {index: tensor.clone() for index, tensor in named.items()}
    return safetensors.save(named, metadata={"consort": skeleton})


def decode(data: bytes, records: Mapping[str, type] = {}) -> Any:
    """The inverse of `encode`; damaged bytes are refused."""
    try:
        (length,) = struct.unpack_from("<Q", data)
        skeleton = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["consort"])
        named = safetensors.load(data)
        return unpack(skeleton, [named[str(index)] for index in range(len(named))], records)
    except (
        SafetensorError,
        ValueError,
        LookupError,
        TypeError,
        RecursionError,
        struct.error,
    ) as error:
        raise Refused(f"the message is damaged ({type(error).__name__})") from error


def tensors_in(value: Any) -> list[NamedTensor]:
    """Every tensor in a payload with its name inside a `Params`, or an empty name.

    Refuses what is neither a tensor nor a plain value.
    """
    found: list[NamedTensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[NamedTensor]) -> None:
    if isinstance(value, Params):
        found += value.items()
    elif isinstance(value, Tensor):
        found.append(("", value))
    elif isinstance(value, Mapping):
        for item in value.values():
            _collect(item, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, found)
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise _unsendable(value)


def check(tensors: Iterable[NamedTensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuses tensors whose numbers are not finite and parameters that are not the model's."""
    floating = []
    for name, tensor in tensors:
        expected = expected_shape(name, tensor, shapes)
        if name and expected is None:
            raise Refused(f"its model has no parameter {name!r}")
        if name and tensor.shape != expected:
            raise Refused(
                f"parameter {name!r} has shape {tuple(tensor.shape)}, expected {expected}"
            )
        if tensor.is_floating_point():
            floating.append((name, tensor))
        elif name:
            raise Refused(f"parameter {name!r} has type {tensor.dtype}, expected floating point")
    _check_finite(floating)


def _check_finite(tensors: Sequence[tuple[str, Tensor]]) -> None:
    """One sum over everything first: only if that is not finite, each tensor is looked at."""
    lengths = torch._foreach_norm([tensor for _, tensor in tensors], 1) if tensors else ()
    if math.isfinite(sum(float(length) for length in lengths)):
        return
    for name, tensor in tensors:
        if not bool(torch.isfinite(tensor).all()):
            raise Refused(f"{name or 'a tensor'} holds NaN or infinite values")


def _unsendable(value: Any) -> Refused:
    return Refused(f"a {type(value).__name__} cannot be sent: use tensors, numbers, text, lists")


def _key(key: Any) -> str | int:
    if isinstance(key, str | int):
        return key
    raise Refused(f"a key of type {type(key).__name__} cannot be sent: use text or whole numbers")
