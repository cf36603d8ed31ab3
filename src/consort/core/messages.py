"""What crosses the wire: questions, and answers with what a server makes of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from consort.core.params import Params, mean
from consort.core.wire import NamedTensor, tensors_in
from consort.errors import ClientFailed, NoReplies

Payload = dict[str, Any]
State = dict[str, Any]
"""What a client remembers from round to round; it never leaves the client.

Assigning to a key is what makes it remembered: changing a tensor in place is not seen.
"""
Average = Callable[[Sequence[Params], Sequence[float] | None], Params]

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
    def of_algorithm(self) -> bool:
        """Whether an algorithm makes this call; those of protocols have names such as `a.b`."""
        return "." not in self.method

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


class OnlyMeans(Mapping[str, Any]):
    """Answers of which only means are known; it takes the place of every single answer."""

    @abstractmethod
    def mean(self, key: str, weight: object, clients: Sequence[str]) -> Params:
        """The mean of the `Params` under a key over all clients that answered.

        Args:
            key: The entry of the answers.
            weight: The entry that weights them, or None.
            clients: Whose answers are averaged.

        Raises:
            UsageError: This mean is not known.
        """


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
        if isinstance(first, OnlyMeans):
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
