"""What clients answer: an algorithm declares it beside `on_client`, and the server checks it.

`@on_client(model=Model(), examples=Count())` says that an answer has these two entries. One with
other entries, other parameters, other types or numbers out of range is refused before the algorithm
sees it. Where an entry depends on the options of the algorithm or on what the client was sent, a
function of both takes its place; None stands for an entry that must be missing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from consort.core.known import Known, ModelPart, check_kind
from consort.core.limits import LARGEST, LONGEST_NAME, Limits
from consort.core.params import Params
from consort.core.wire import FACTORS
from consort.errors import Refused

_OVERHEAD, _PER_TENSOR, _PER_VALUE = 1 << 16, 256, 64  # bytes of a header


@dataclass(frozen=True)
class Size:
    """How large an answer can be."""

    data: int = 0
    """The bytes of its tensors."""
    tensors: int = 0
    """The number of its tensors."""
    values: int = 0
    """The number of its plain values, and of the characters of its names."""

    def __add__(self, other: Size) -> Size:
        return Size(
            self.data + other.data, self.tensors + other.tensors, self.values + other.values
        )

    def __mul__(self, count: int) -> Size:
        return Size(self.data * count, self.tensors * count, self.values * count)

    @property
    def limits(self) -> Limits:
        """The limits of a message with such an answer."""
        header = _OVERHEAD + _PER_TENSOR * self.tensors + _PER_VALUE * self.values
        return Limits(header + self.data, header, self.tensors, self.tensors + self.values + 1000)


class Entry(ABC):
    """What an entry of an answer must be."""

    @abstractmethod
    def check(self, value: Any, where: str, known: Known) -> None:
        """Checks what a client sent.

        Args:
            value: What it sent.
            where: The name of the entry.
            known: What the server knows about the client.

        Raises:
            Refused: If it cannot be right.
        """

    @abstractmethod
    def size(self, known: Known) -> Size:
        """The largest size that the entry can have from a client that is `known`."""


Declared = Entry | None | Callable[[Any, Mapping[str, Any]], Entry | None]
"""An entry, or a function of the algorithm and of what the client was sent."""
Contract = Mapping[str, Declared]
"""What a client method answers, by the name of the entry."""


class Model(Entry):
    """Parameters of the client's model, or their update: exactly these, in the model's types.

    Args:
        *roles: The parts of the model; the whole model if none is given.
        without: Parts that are left out.
        factors: Whether a matrix may be sent as the factors of a low-rank product.

    Examples:
        >>> from consort import Count, Model, on_client
        >>> @on_client(encoder=Model("encoder", without=("buffers",)), examples=Count())
        ... def train(self, client, encoder): ...
        >>> sorted(train.answers)
        ['encoder', 'examples']
    """

    def __init__(self, *roles: str, without: tuple[str, ...] = (), factors: bool = False) -> None:
        self.roles, self.without, self.factors = roles, without, factors

    def part(self, known: Known) -> ModelPart:
        """The parameters that a client sends which is `known`."""
        return known.form.part(self.roles, self.without)

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses parameters that differ in a name, a shape or a type.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        part = self.part(known)
        if self.factors and isinstance(value, Params):
            part.check(_whole(value, part, where, known.form.params), where)
        else:
            part.check(value, where)

    def size(self, known: Known) -> Size:
        """The size of these parameters; factors are never larger.

        Args:
            known: What the server knows about the client.
        """
        return _size_of(self.part(known))


class Same(Entry):
    """Parameters with the names, shapes and types of others.

    Args:
        params: The others, such as those that the client was sent.
    """

    def __init__(self, params: Params) -> None:
        self.part = ModelPart(params)

    def check(self, value: Any, where: str, known: Known) -> None:  # noqa: ARG002
        """Refuses parameters that differ in a name, a shape or a type.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        self.part.check(value, where)

    def size(self, known: Known) -> Size:  # noqa: ARG002
        """The size of these parameters.

        Args:
            known: What the server knows about the client.
        """
        return _size_of(self.part)


def _size_of(part: ModelPart) -> Size:
    return Size(part.data, len(part.names), part.text + len(FACTORS) * len(part.names))


def _whole(sent: Params, part: ModelPart, where: str, model: Params) -> Params:
    """What was sent, with the model's own matrix in the place of factors, which are checked."""
    found = {}
    for name, tensor in sent.items():
        original = name.removesuffix(FACTORS)
        if original in found:
            raise Refused(f"{where} has the parameter {original!r} twice")
        if original != name and original in part.kinds:
            shape, kind = part.kinds[original]
            numbers, columns = math.prod(shape), sum(shape[:1]) + math.prod(shape[1:])
            rows = len(tensor) if tensor.ndim else 0
            check_kind(f"{where}, parameter {name!r},", tensor, (rows, columns), kind)
            if not 0 < rows * columns < numbers:
                raise Refused(f"{where}, parameter {name!r}, has {rows} factors")
            tensor = model[original]
        found[original] = tensor
    return Params(found)


@dataclass(frozen=True)
class Count(Entry):
    """The number of a client's training examples: at most as many as it announced.

    Examples:
        >>> from consort import Count, on_client
        >>> @on_client(examples=Count())
        ... def count(self, client):
        ...     return {"examples": client.examples}
    """

    times: int = 1
    """Of something else, such as steps of training, there may be so many times as many."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses what is not a whole number between 0 and the number that was announced.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        Whole(0, self.times * known.examples).check(value, where, known)

    def size(self, known: Known) -> Size:  # noqa: ARG002
        """One number.

        Args:
            known: What the server knows about the client.
        """
        return Size(values=1)


@dataclass(frozen=True)
class Whole(Entry):
    """A whole number in a range.

    Examples:
        >>> from consort import Whole, on_client
        >>> @on_client(cluster=lambda self, sent: Whole(0, len(sent["models"]) - 1))
        ... def choose(self, client, models): ...
    """

    low: int
    """The smallest value."""
    high: int
    """The largest value."""

    def check(self, value: Any, where: str, known: Known) -> None:  # noqa: ARG002
        """Refuses everything else, truth values included.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        if type(value) is not int or not self.low <= value <= self.high:
            raise Refused(
                f"{where} is {shown(value)}, expected a whole number from {self.low} to {self.high}"
            )

    def size(self, known: Known) -> Size:  # noqa: ARG002
        """One number.

        Args:
            known: What the server knows about the client.
        """
        return Size(values=1)


@dataclass(frozen=True)
class Number(Entry):
    """A number in a range, by default any finite number up to 1e15.

    Examples:
        >>> from consort import Number, on_client
        >>> @on_client(accuracy=Number(0, 1))
        ... def validate(self, client, model): ...
    """

    low: float = -LARGEST
    """The smallest value."""
    high: float = LARGEST
    """The largest value."""
    finite: bool = True
    """Whether NaN and infinite values are refused; a model that has diverged may have them."""

    def check(self, value: Any, where: str, known: Known) -> None:  # noqa: ARG002
        """Refuses everything else, truth values included.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if plain and self.low <= value <= self.high:
            return
        if self.finite or not isinstance(value, float) or math.isfinite(value):
            raise Refused(
                f"{where} is {shown(value)}, expected a number from {self.low:g} to {self.high:g}"
            )

    def size(self, known: Known) -> Size:  # noqa: ARG002
        """One number.

        Args:
            known: What the server knows about the client.
        """
        return Size(values=1)


def shown(value: object) -> str:
    """A short text about a `value` that was sent."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if value.bit_length() < LONGEST_NAME else "a huge number"
    return f"{value[:20]!r}" if isinstance(value, str) else f"a {type(value).__name__}"
