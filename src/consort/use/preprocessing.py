"""What a data set does to raw inputs before a model sees them, described without code."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from consort.data.dataset import as_is
from consort.experiment.allocation import Seat

_TRIED = 8
_BYTE = 255


def preprocessing_of(seat: Seat) -> dict[str, Any]:
    """How raw inputs of a client become those of its model, as JSON values.

    Args:
        seat: The client with its data set.

    Returns:
        The function with its first sentence, the `dtype` of raw inputs and, if all that it does is
        `raw * multiply + add`, these numbers: one of each, or one per channel. `obfuscation` names
        what the client does to its inputs after that, if anything.
    """
    raw = seat.dataset.examples.inputs[:_TRIED]
    found: dict[str, Any] = {**_named(seat.dataset.prepare)}
    found["dtype"] = str(raw.dtype).removeprefix("torch.")
    if numbers := _affine(seat.dataset.prepare, raw):
        found["multiply"], found["add"] = numbers
    if seat.obfuscate is not as_is:
        found["obfuscation"] = _named(seat.obfuscate)["function"]
    return found


def _named(function: Callable[..., Any]) -> dict[str, str]:
    while isinstance(function, partial):
        function = function.func
    place = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    return {"function": place, "about": (function.__doc__ or "").strip().partition("\n")[0]}


def _affine(prepare: Callable[[Tensor], Tensor], raw: Tensor) -> list[list[float]] | None:
    """The factors and the summands of a preparation that has no others, by channel."""
    largest = _BYTE if raw.dtype == torch.uint8 else 1
    low, high = (
        prepare(torch.full_like(raw[:1], value)).to(torch.float64) for value in (0, largest)
    )
    made = prepare(raw.clone()).to(torch.float64)
    if low.shape != raw[:1].shape or made.shape != raw.shape:
        return None
    multiply, add = (high - low) / largest, low
    if not torch.allclose(made, raw.to(torch.float64) * multiply + add, atol=1e-5):
        return None
    numbers = []
    for values in (multiply, add):
        channels = values[0].flatten(1) if values.ndim == 4 else values.reshape(1, -1)
        if not bool((channels == channels[:, :1]).all()):
            return None
        found = [round(value, 9) for value in channels[:, 0].tolist()]
        numbers.append(found[:1] if len(set(found)) == 1 else found)
    return numbers
