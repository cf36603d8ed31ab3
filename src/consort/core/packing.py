"""Values as JSON values and a list of tensors, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from consort.core.limits import OWN, Limits
from consort.core.params import Params
from consort.errors import Refused


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
    raise unsendable(value)


def _place(tensor: Tensor, tensors: list[Tensor], known: dict[int, int] | None) -> int:
    place = len(tensors) if known is None else known.setdefault(id(tensor), len(tensors))
    if place == len(tensors):
        tensors.append(tensor.detach())
    return place


def unpack(
    skeleton: Any,
    tensors: Sequence[Tensor],
    records: Mapping[str, type] = {},
    limits: Limits = OWN,
) -> Any:
    """Restores a value from what `pack` made of it.

    Args:
        skeleton: The JSON values that `pack` returned.
        tensors: The tensors that `pack` appended.
        records: The dataclasses that may occur, by name; no others are created.
        limits: What the value may contain.

    Raises:
        Refused: If the skeleton holds something else, or more than the limits allow.
    """
    reader = _Reader(tensors, records, limits)
    value = reader.value(skeleton, 0)
    if not limits.shared and reader.taken != len(tensors):
        raise Refused(f"only {reader.taken} of the {len(tensors)} tensors of the message are used")
    return value


class _Reader:
    """Reads one skeleton, and counts what it finds there."""

    def __init__(
        self, tensors: Sequence[Tensor], records: Mapping[str, type], limits: Limits
    ) -> None:
        self.tensors, self.records, self.limits = tensors, records, limits
        self.taken = 0
        self.items = 0

    def value(self, skeleton: Any, depth: int) -> Any:
        self.count(1)
        if isinstance(skeleton, str):
            return self.text(skeleton)
        if not isinstance(skeleton, list | dict):
            return skeleton
        if depth >= self.limits.depth:
            raise Refused("the message is nested too deeply")
        if isinstance(skeleton, list):
            return [self.value(item, depth + 1) for item in skeleton]
        match list(skeleton), skeleton:
            case ["tensor"], {"tensor": index}:
                return self.tensor(index)
            case ["params"], {"params": list(entries)}:
                self.count(len(entries))
                return Params(self.table((self.text(k), self.tensor(i)) for k, i in entries))
            case ["map"], {"map": list(entries)}:
                pairs = ((self.key(k), self.value(v, depth + 1)) for k, v in entries)
                return self.table(pairs)
            case ["tuple"], {"tuple": list(items)}:
                return tuple(self.value(item, depth + 1) for item in items)
            case ["record", "fields"], {"record": str(name), "fields": entries} if (
                name in self.records
            ):
                return self.records[name](**self.value(entries, depth + 1))
        raise Refused("a message holds something that is neither a tensor nor a plain value")

    def count(self, more: int) -> None:
        self.items += more
        if self.items > self.limits.items:
            raise Refused(f"the message has more than {self.limits.items} values")

    def tensor(self, index: Any) -> Tensor:
        known = self.taken if not self.limits.shared else len(self.tensors) - 1
        if type(index) is not int or not 0 <= index <= known or index >= len(self.tensors):
            raise Refused("the message refers to a tensor that it does not have")
        if not self.limits.shared:
            if index != self.taken:
                raise Refused("the message uses a tensor twice")
            self.taken += 1
        return self.tensors[index]

    def text(self, text: Any) -> str:
        if not isinstance(text, str):
            raise Refused(f"a name is of type {type(text).__name__}, not text")
        if len(text) > self.limits.text:
            raise Refused(f"a text has {len(text)} characters, more than {self.limits.text}")
        text.encode()  # half of a surrogate pair cannot be written anywhere
        return text

    def key(self, key: Any) -> str | int:
        return key if type(key) is int else self.text(key)

    def table(self, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
        table: dict[Any, Any] = {}
        for key, value in pairs:
            if key in table:
                raise Refused(f"the message has the name {str(key)[:100]!r} twice")
            table[key] = value
        return table


def unsendable(value: Any) -> Refused:
    """Why a `value` of this type cannot be sent."""
    return Refused(f"a {type(value).__name__} cannot be sent: use tensors, numbers, text, lists")


def _key(key: Any) -> str | int:
    if isinstance(key, str | int):
        return key
    raise Refused(f"a key of type {type(key).__name__} cannot be sent: use text or whole numbers")
