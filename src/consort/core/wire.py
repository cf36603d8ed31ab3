"""Payloads as bytes, without pickle, and the checks of what is received."""

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
"""A tensor with its name in `Params`; the name of any other tensor is empty."""
Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each parameter of a model."""
FACTORS = "/factors"
"""Ends the name of a parameter that is sent as the factors of a low-rank product."""


def pack(value: Any, tensors: list[Tensor], known: dict[int, int] | None = None) -> Any:
    """Turns a value into JSON values and a list of tensors; the inverse is `unpack`.

    Args:
        value: Tensors, `Params`, numbers, text, None, and lists, tuples, dicts and dataclasses of
            these.
        tensors: The tensors of `value` are appended to this list.
        known: Positions in `tensors` by the id of the tensor. If given, a tensor that occurs in
            several `Params` is appended once, which is safe because `Params` are never changed in
            place.

    Returns:
        The value as JSON values, with the position in `tensors` in place of each tensor.

    Raises:
        Refused: If the value holds something else.
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
    """Restores a value from what `pack` made of it.

    Args:
        skeleton: The JSON values that `pack` returned.
        tensors: The tensors that `pack` appended.
        records: The dataclasses that may occur, by name; no others are created.

    Raises:
        Refused: If the skeleton holds something else.
    """
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
    """Serialises a payload or state: a safetensors file whose metadata hold all but the tensors.

    Args:
        value: What `pack` accepts.
        once: Whether a tensor that occurs in several `Params` is written once; then equal values
            may have different bytes.

    Raises:
        Refused: If the value holds something that cannot be sent.
    """
    tensors: list[Tensor] = []
    skeleton = json.dumps(pack(value, tensors, {} if once else None), separators=(",", ":"))
    named = {str(index): tensor.contiguous() for index, tensor in enumerate(tensors)}
    # safetensors refuses tensors that share memory: each is written from a copy of its own.
    if len({tensor.untyped_storage().data_ptr() for tensor in named.values()}) < len(named):
        named = {index: tensor.clone() for index, tensor in named.items()}
    return safetensors.save(named, metadata={"consort": skeleton})


def decode(data: bytes, records: Mapping[str, type] = {}) -> Any:
    """Restores a value from what `encode` made of it.

    Args:
        data: The bytes that `encode` returned.
        records: The dataclasses that may occur, by name; no others are created.

    Raises:
        Refused: If the bytes are damaged, or hold something else.
    """
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
    """All tensors of a payload.

    Args:
        value: The payload.

    Raises:
        Refused: If the payload holds something that is neither a tensor nor a plain value.
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
    """Checks tensors that were received.

    Args:
        tensors: The tensors, with names where they are parameters.
        shapes: The shape of each parameter of the model.

    Raises:
        Refused: If a value is NaN or infinite, or a parameter does not match the model in name,
            shape or type.
    """
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
    """The shape that a parameter, or its factors, must have; None if there is no such parameter."""
    original = name.removesuffix(FACTORS)
    shape = shapes.get(original)
    if shape is None or name == original:
        return shape
    return *tensor.shape[:1], shape[0] + math.prod(shape[1:])


def _check_finite(tensors: Sequence[tuple[str, Tensor]]) -> None:
    """Sums up everything first; only if the sum is not finite, each tensor is looked at."""
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
