"""How payloads are written down and checked: tensors and plain values, no pickle."""

from __future__ import annotations

import dataclasses
import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors
from torch import Tensor

from consort.core.params import Params
from consort.errors import Refused

NamedTensor = tuple[str, Tensor]
Shapes = Mapping[str, tuple[int, ...]]
FACTORS = "/factors"
"""How the name of a parameter ends if the factors of a low-rank product take its place."""


def pack(value: Any, tensors: list[Tensor], known: dict[int, int] | None = None) -> Any:
    """Turns a value into JSON, with every tensor replaced by its place in `tensors`.

    With `known`, the places of objects by their ids, a tensor of several `Params` has one place:
    nobody changes what they hold.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        return {"tensor": len(tensors) - 1}
    if isinstance(value, Params):
        return {"params": [[name, _place(t, tensors, known)] for name, t in value.items()]}
    if isinstance(value, Mapping):
        return {"map": [[_key(k), pack(v, tensors, known)] for k, v in value.items()]}
    if isinstance(value, list):
        return [pack(item, tensors, known) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(item, tensors, known) for item in value]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"record": type(value).__name__, "fields": pack(entries, tensors, known)}
    raise _unsendable(value)


def _place(tensor: Tensor, tensors: list[Tensor], known: dict[int, int] | None) -> int:
    place = len(tensors) if known is None else known.setdefault(id(tensor), len(tensors))
    if place == len(tensors):
        tensors.append(tensor.detach())
    return place


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


def encode(value: Any, once: bool = False) -> bytes:
    """Any payload or state as bytes: a safetensors file whose metadata holds the rest.

    `once` writes a tensor of several `Params` once; then equal values may have unequal bytes.
    """
    tensors: list[Tensor] = []
    skeleton = json.dumps(pack(value, tensors, {} if once else None), separators=(",", ":"))
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
        expected = _expected_shape(name, tensor, shapes)
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


def _expected_shape(name: str, tensor: Tensor, shapes: Shapes) -> tuple[int, ...] | None:
    """The shape that a parameter, or its factors in its place, must have; None if there is none."""
    original = name.removesuffix(FACTORS)
    shape = shapes.get(original)
    if shape is None or name == original:
        return shape
    return *tensor.shape[:1], shape[0] + math.prod(shape[1:])


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
