"""Calls from the server to clients, their replies, and how replies are averaged."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from consort.core.limits import LONGEST_NAME
from consort.core.params import Params, mean
from consort.core.registry import did_you_mean
from consort.core.wire import NamedTensor, tensors_in
from consort.errors import ClientFailed, NoReplies, Refused, UsageError

Payload = dict[str, Any]
"""The content of a call or a reply: names with tensors, `Params`, numbers, text, lists and dicts.

Examples:
    >>> import torch
    >>> from consort import Params, Payload
    >>> reply: Payload = {"model": Params({"encoder.w": torch.zeros(2)}), "examples": 20}
    >>> sorted(reply)
    ['examples', 'model']
"""
State = dict[str, Any]
"""What a client keeps from round to round; it never leaves the client.

Only assigning to a key is recorded: changes of a tensor in place are lost.
"""
EVALUATION = "test"
"""The client method that evaluates; all others train."""
_AFTER_TRAINING = 1 << 30
"""Added to the step of an evaluation: it takes place after all other calls of its round."""
Average = Callable[[Sequence[Params], Sequence[float] | None], Params]
"""Averages `Params` with optional weights, as `consort.core.params.mean` does."""

_CLIENT = re.compile(r"[\w-][\w.-]*")
_METHOD = re.compile(r"[A-Za-z_]\w*(\.\w+)?", re.ASCII)
_LAST = 10**9  # round, step or turn

_average: ContextVar[Average] = ContextVar("average", default=mean)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one method on one client."""

    client: str
    """The name of the client."""
    method: str
    """The name of the method; those of protocols have a dot, as in `a.b`."""
    round: int
    """The round, counted from 1."""
    step: int
    """How many calls the server made in this round before; it orders what clients keep."""
    turn: int
    """How many of these had the same method; the client's randomness depends on it."""
    payload: Payload
    """The arguments of the method."""

    @property
    def evaluation(self) -> bool:
        """Whether the client is only evaluated; then it keeps no changes of its state.

        The method decides, not the caller, who could otherwise train without protections.
        """
        return self.method == EVALUATION

    @property
    def stamp(self) -> tuple[int, int]:
        """The time of this call in the run; changes of the client's state are kept under it."""
        return self.round, self.step + (_AFTER_TRAINING if self.evaluation else 0)

    @property
    def before(self) -> tuple[int, int]:
        """The client sees its state as of this time; in an evaluation, after the whole round."""
        return self.stamp

    @property
    def of_algorithm(self) -> bool:
        """Whether the algorithm makes this call, and not a protocol: see `method`."""
        return "." not in self.method

    @property
    def header(self) -> list[Any]:
        """All but the payload, as plain values: see `from_header`."""
        return [self.client, self.method, self.round, self.step, self.turn]

    @classmethod
    def from_header(cls, header: Sequence[Any], payload: Payload) -> Call:
        """Restores a call.

        Args:
            header: What `header` returned, or what a stranger sent in its place.
            payload: The payload of the call.

        Raises:
            Refused: If the header is of another form: it decides about the names of files.
        """
        if not isinstance(header, list | tuple) or len(header) != 5:
            raise Refused("the header of a call has five entries")
        client, method, *numbers = header
        if not _is_name(client, _CLIENT) or not _is_name(method, _METHOD):
            raise Refused("the header of a call has an impossible name of a client or a method")
        if not all(type(number) is int and 0 <= number <= _LAST for number in numbers):
            raise Refused("the header of a call has a number that is not whole or out of range")
        round_, step, turn = numbers
        if round_ < 1:
            raise Refused("the header of a call names round 0, but rounds are counted from 1")
        return cls(client, method, round_, step, turn, payload)


@dataclass(frozen=True)
class Reply:
    """The reply of one client to a call, or the error that occurred instead."""

    client: str
    """The name of the client."""
    content: Payload = field(default_factory=dict)
    """What the method returned."""
    error: ClientFailed | None = None
    """Why there is no content; None if the call succeeded."""
    seconds: float = 0.0
    """The time that the client took."""
    flops: int = 0
    """The floating-point operations of the call, if they were counted."""

    @cached_property
    def tensors(self) -> list[NamedTensor]:
        """The tensors of the content, as `tensors_in` finds them."""
        return tensors_in(self.content)


def _is_name(name: object, pattern: re.Pattern[str]) -> bool:
    short = isinstance(name, str) and len(name) <= LONGEST_NAME
    return short and bool(pattern.fullmatch(str(name)))


def common_keys(calls: Sequence[Call]) -> set[str]:
    """The keys of the payloads of `calls` whose value is the same object in all of them."""
    if not calls:
        return set()
    first = calls[0].payload
    return {
        key for key, value in first.items() if all(call.payload.get(key) is value for call in calls)
    }


class Each(dict[str, Any]):
    """Values by client: as an argument of `Clients.ask`, each client receives its own value.

    Examples:
        >>> from consort import Each
        >>> Each({"bank-1": 0.1, "bank-2": 0.2})["bank-2"]
        0.2
    """


class OnlyMeans(Mapping[str, Any]):
    """The content of replies of which only means are known.

    The same object takes the place of the content of every reply.
    """

    @abstractmethod
    def mean(self, key: str, weight: object, clients: Sequence[str]) -> Params:
        """The mean of the `Params` under a key over clients.

        Args:
            key: The key of the content.
            weight: The key whose numbers are the weights, or None.
            clients: The clients whose replies are averaged.

        Raises:
            UsageError: If this mean is not known.
        """


class Replies(Mapping[str, Payload]):
    """The replies of clients by name, in client order.

    Args:
        contents: The content of each client's reply.

    Examples:
        >>> import torch
        >>> from consort import Params, Replies
        >>> replies = Replies({
        ...     "bank-1": {"model": Params({"w": torch.tensor([1.0])}), "examples": 30},
        ...     "bank-2": {"model": Params({"w": torch.tensor([5.0])}), "examples": 10},
        ... })
        >>> replies.each("examples")
        {'bank-1': 30, 'bank-2': 10}
        >>> replies.mean("model", weight="examples")["w"]
        tensor([2.])
    """

    def __init__(self, contents: Mapping[str, Payload]) -> None:
        self._contents = dict(sorted(contents.items()))

    def __getitem__(self, client: str) -> Payload:
        return self._contents[client]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)

    def each(self, key: str) -> Each:
        """The values under one key.

        Args:
            key: A key that all replies have.

        Returns:
            The value of each client.

        Raises:
            UsageError: If a client's reply has no such key.
        """
        for client, content in self._contents.items():
            if key not in content and not isinstance(content, OnlyMeans):
                raise UsageError(
                    f"the answer of client {client} has no {did_you_mean(key, content)}"
                )
        return Each({client: content[key] for client, content in self._contents.items()})

    def mean(self, key: str, weight: str | Mapping[str, float] | None = None) -> Params:
        """The mean of the `Params` under a key.

        Args:
            key: A key that all replies have.
            weight: The key whose numbers are the weights, or the weights by client; None for equal
                weights.

        Raises:
            NoReplies: If no client replied.
            UsageError: If the sum of the weights is not positive, or the `Params` differ in names
                or shapes.
        """
        if not self._contents:
            raise NoReplies(f"no client answered, so there is no mean of {key!r}")
        first = next(iter(self._contents.values()))
        if isinstance(first, OnlyMeans):
            return first.mean(key, weight, tuple(self))
        for client, value in self.each(key).items():
            if not isinstance(value, Params):
                raise UsageError(
                    f"client {client} answered {key!r} with {_described(value)}, but only Params "
                    "have a mean: let it answer Params.of(client.model)"
                )
        weights = self.each(weight) if isinstance(weight, str) else weight
        return _average.get()(
            list(self.each(key).values()),
            None if weights is None else [float(weights[client]) for client in self],
        )


def _described(value: object) -> str:
    if isinstance(value, Mapping) and value and all(isinstance(t, Tensor) for t in value.values()):
        return "a dict of tensors, such as a state_dict"
    return f"a {type(value).__name__}"


@contextmanager
def averaging(rule: Average) -> Iterator[list[int]]:
    """Uses another rule than the mean in every `Replies.mean` within this context.

    Args:
        rule: The rule; it receives what `consort.core.params.mean` receives.

    Yields:
        A list to which the number of averaged items is added each time that the rule is used.
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
