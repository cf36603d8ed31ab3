"""What a client's answer changes, whatever the algorithm calls it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.wire import pack, tensors_in, unpack

Change = Callable[[Params], Params]


def reworked(content: Payload, received: Payload, change: Change) -> Payload:
    """The answer with another update: `change` gets all its numbers at once, by place.

    What has the key of something the client received is a new version of that, and only the
    difference counts; everything else is an update as it stands.
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
    """For every tensor in a value what it was before, if it was sent."""
    for name, tensor in tensors_in(value):
        base = sent.get(name) if isinstance(value, Params) and isinstance(sent, Params) else None
        yield base if base is not None and base.shape == tensor.shape else None


def _minus(tensor: Tensor, base: Tensor | None) -> Tensor:
    return tensor if base is None else tensor - base
