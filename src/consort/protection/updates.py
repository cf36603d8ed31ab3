"""The update in a client's answer, for any algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from consort.core.messages import Payload
from consort.core.packing import pack, unpack
from consort.core.params import Params
from consort.core.wire import tensors_in

Change = Callable[[Params], Params]
"""Computes another update from an update."""


def reworked(content: Payload, received: Payload, change: Change) -> Payload:
    """Replaces the update in an answer by another one.

    If the client received parameters under the same key, the update is the difference to them;
    otherwise the entry itself is the update.

    Args:
        content: The answer.
        received: The payload that the client received.
        change: Computes the new update from the whole update of the answer, whose tensors are
            named by their position.

    Returns:
        The answer with the new update; `content` itself if `change` returns its argument.
    """
    tensors: list[Tensor] = []
    skeleton = pack(content, tensors)
    bases = [base for key, value in content.items() for base in _bases(value, received.get(key))]
    moving = {str(place): t for place, t in enumerate(tensors) if t.is_floating_point()}
    before = Params({place: _minus(t, bases[int(place)]) for place, t in moving.items()})
    after = change(before)
    if after is before:
        return content
    for place, update in after.items():
        base = bases[int(place)]
        tensors[int(place)] = update if base is None else base + update
    result: Payload = unpack(skeleton, tensors)
    return result


def _bases(value: Any, sent: Any) -> Iterator[Tensor | None]:
    """For every tensor in a value, the tensor that the client received in its place, if any."""
    for name, tensor in tensors_in(value):
        base = sent.get(name) if isinstance(value, Params) and isinstance(sent, Params) else None
        yield base if base is not None and base.shape == tensor.shape else None


def _minus(tensor: Tensor, base: Tensor | None) -> Tensor:
    return tensor if base is None else tensor - base
