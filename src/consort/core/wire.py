"""Payloads as bytes, without pickle, and the checks of what is received."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from safetensors import torch as safetensors
from torch import Tensor, dtype

from consort.core.limits import MESSAGE, OWN, Limits, read_json
from consort.core.packing import pack, unpack, unsendable
from consort.core.params import Params
from consort.errors import Refused

NamedTensor = tuple[str, Tensor]
"""A tensor with its name in `Params`; the name of any other tensor is empty."""
Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each parameter of a model."""
FACTORS = "/factors"
"""Ends the name of a parameter that is sent as the factors of a low-rank product."""
Place = tuple[dtype, list[int], int, int]
"""The type and shape of a tensor, and its first byte and the one after its last."""
_TYPES = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""The types that tensors can have in a message, by their names in the format."""
_MOST_NUMBERS = 1 << 48
_SHORT = 1e18  # a norm below it is not rounded, so all numbers are finite


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


def decode(data: bytes, records: Mapping[str, type] = {}, limits: Limits = MESSAGE) -> Any:
    """Restores a value from what `encode` made of it.

    Args:
        data: The bytes that `encode` returned.
        records: The dataclasses that may occur, by name; no others are created.
        limits: What the message may contain; sizes are checked before anything is decoded.

    Raises:
        Refused: If the bytes are damaged, hold something else, or more than the limits allow.
    """
    if len(data) > limits.bytes:
        raise Refused(f"the message has {len(data)} bytes, more than {limits.bytes}")
    try:
        start, header = _header(data, limits)
        skeleton = read_json(header.pop("__metadata__")["consort"].encode(), limits)
        places = _places(header, len(data) - start, limits)
        tensors = [_tensor(data, start, *place) for place in places]
        return unpack(skeleton, tensors, records, limits)
    except (ValueError, LookupError, TypeError, AttributeError, struct.error) as error:
        raise Refused(f"the message is damaged ({type(error).__name__})") from error


def _header(data: bytes, limits: Limits) -> tuple[int, dict[str, Any]]:
    """Where the tensors begin, and the table before them."""
    (length,) = struct.unpack_from("<Q", data)
    if length > len(data) - 8:
        raise Refused("the message is damaged: it ends within its header")
    header: dict[str, Any] = read_json(memoryview(data)[8 : 8 + length], limits)
    return 8 + length, header


def _places(table: Mapping[str, Any], size: int, limits: Limits) -> list[Place]:
    """The type, shape, beginning and end of every tensor, which together fill all bytes."""
    if len(table) > limits.tensors:
        raise Refused(f"the message has {len(table)} tensors, more than {limits.tensors}")
    places = [_place_of(**table[str(index)]) for index in range(len(table))]
    end = 0
    for _, _, begin, after in sorted(places, key=lambda place: place[2:]):
        if begin != end:
            raise Refused("the tensors of the message overlap, or leave bytes between them")
        end = after
    if end != size:
        raise Refused(f"the tensors of the message take {end} bytes, but it has {size}")
    return places


def _place_of(dtype: str, shape: list[int], data_offsets: list[int]) -> Place:
    begin, end = data_offsets
    if dtype not in _TYPES:
        raise Refused(f"a tensor has the type {str(dtype)[:20]}, which cannot be sent")
    kind = _TYPES[dtype]
    whole = [type(number) is int and number >= 0 for number in (*shape, begin, end)]
    if not all(whole) or math.prod(max(length, 1) for length in shape) > _MOST_NUMBERS:
        raise Refused("a tensor has an impossible shape")
    if end - begin != math.prod(shape) * kind.itemsize:
        raise Refused("the bytes of a tensor are more or fewer than its shape needs")
    return kind, shape, begin, end


def _tensor(data: bytes, start: int, kind: dtype, shape: list[int], begin: int, end: int) -> Tensor:
    """One tensor, copied out of the message into memory of its own."""
    flat = torch.empty(math.prod(shape), dtype=kind)
    raw = np.frombuffer(data, np.uint8, end - begin, start + begin)
    if kind is torch.bool and raw.size and raw.max() > 1:
        raise Refused("a tensor of truth values has others than 0 and 1")
    flat.view(torch.uint8).numpy()[:] = raw
    return flat.view(shape)


def tensors_in(value: Any) -> list[NamedTensor]:
    """All tensors of a payload.

    Args:
        value: The payload.

    Raises:
        Refused: If the payload holds something that is neither a tensor nor a plain value.
    """
    found: list[NamedTensor] = []
    _collect(value, found, 0)
    for name, tensor in found:
        if not isinstance(tensor, Tensor) or tensor.is_meta or tensor.layout is not torch.strided:
            raise unsendable(tensor)
        if not isinstance(name, str):
            raise Refused(f"the name of a parameter is of type {type(name).__name__}, not text")
    return found


def _collect(value: Any, found: list[NamedTensor], depth: int) -> None:
    if isinstance(value, Params):
        found += value.items()
    elif isinstance(value, Tensor):
        found.append(("", value))
    elif isinstance(value, Mapping | list | tuple):
        if depth >= OWN.depth:
            raise Refused("the payload is nested too deeply")
        for item in value.values() if isinstance(value, Mapping) else value:
            _collect(item, found, depth + 1)
    elif value is not None and not isinstance(value, bool | int | float | str):
        raise unsendable(value)


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
    check_finite(floating)


def _expected_shape(name: str, tensor: Tensor, shapes: Shapes) -> tuple[int, ...] | None:
    """The shape that a parameter, or its factors, must have; None if there is no such parameter."""
    original = name.removesuffix(FACTORS)
    shape = shapes.get(original)
    if shape is None or name == original:
        return shape
    return *tensor.shape[:1], shape[0] + math.prod(shape[1:])


def check_finite(tensors: Sequence[NamedTensor], largest: float = math.inf) -> None:
    """Checks the numbers in floating-point tensors.

    The norm of each tensor is computed first, which is quick; only if one is too large, all of its
    numbers are looked at.

    Args:
        tensors: The tensors, with names where they are parameters.
        largest: The largest absolute value.

    Raises:
        Refused: If a number is NaN, infinite or too large.
    """
    lengths = torch._foreach_norm([tensor for _, tensor in tensors]) if tensors else ()
    for (name, tensor), length in zip(tensors, lengths, strict=True):
        if float(length) <= min(largest, _SHORT):
            continue
        if not bool(torch.isfinite(tensor).all()):
            raise Refused(f"{name or 'a tensor'} holds NaN or infinite values")
        if tensor.abs().max() > largest:
            raise Refused(f"{name or 'a tensor'} holds values beyond {largest:g}")
