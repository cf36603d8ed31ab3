"""Engines around an engine: counting bytes, checking replies, injecting faults, handling errors.

Each wraps an engine and is an engine, so algorithms do not notice them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from consort.core.engine import Engine
from consort.core.messages import Call, OnlyMeans, Payload, Reply
from consort.core.wire import NamedTensor, tensors_in
from consort.engines.answers import Answers
from consort.errors import ClientFailed, Refused
from consort.federation.participation import happens

ErrorPolicy = Literal["stop", "skip", "retry"]
"""What an error of a client means: stop the run, go on without the client, or ask it again."""


def bytes_by_role(tensors: Iterable[NamedTensor]) -> dict[str, int]:
    """The size of all tensors of a payload, summed by role.

    Plain numbers and text are not counted: they are small, and their size depends on the engine.

    Args:
        tensors: The tensors with their names, whose first part is the role.

    Returns:
        The bytes by role; `other` for tensors without a name.
    """
    sizes: dict[str, int] = {}
    for name, tensor in tensors:
        role = name.split(".", 1)[0] or "other"
        sizes[role] = sizes.get(role, 0) + tensor.nbytes
    return sizes


@dataclass
class Wrapper:
    """Passes everything on to the wrapped engine; the base of the others."""

    engine: Engine
    """The wrapped engine."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls` with the wrapped engine."""
        return self.engine.deliver(calls)

    def close(self) -> None:
        """Closes the wrapped engine."""
        self.engine.close()


@dataclass
class Metered(Wrapper):
    """Records the bytes that were sent to and by every client."""

    record: Callable[[Call, Reply, dict[str, int], dict[str, int]], Any]
    """Called with the call, the reply, the bytes sent to the client and those sent by it."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls` and records the bytes of every call and reply."""
        sent = _PayloadSizes()
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            self.record(call, reply, sent.of(call.payload), _received(reply))
            yield reply


def _received(reply: Reply) -> dict[str, int]:
    """The bytes that a client sent, by role; none if its answer is refused later."""
    try:
        return bytes_by_role(reply.tensors)
    except Refused:
        return {}


class _PayloadSizes:
    """Sizes of payloads, computed once for successive clients that are sent the same objects."""

    def __init__(self) -> None:
        self.key: tuple[int, ...] = ()
        self.value: dict[str, int] = {}

    def of(self, payload: Payload) -> dict[str, int]:
        key = tuple(map(id, payload.values()))
        if key != self.key:
            self.key, self.value = key, bytes_by_role(tensors_in(payload))
        return self.value


@dataclass
class Checked(Wrapper):
    """Refuses replies that are not what the algorithm declares, or that cannot be right."""

    answers: Answers
    """What clients may answer."""
    tell: Callable[[ClientFailed], Any] = lambda _: None
    """Reports a reply that is refused, if nobody else does."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls`, with an error in the place of every invalid reply."""
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            try:
                if reply.client != call.client:
                    raise Refused("somebody else answered in its place")
                if reply.error is None and not isinstance(reply.content, OnlyMeans):
                    self.answers.check(call, reply.content, reply.tensors)
            except Refused as refusal:
                error = RefusedReply(call.client, str(refusal))
                self.tell(error)
                reply = Reply(call.client, error=error)
            yield reply


class RefusedReply(ClientFailed):
    """A client answered, but its answer was refused."""


class Absent(ClientFailed):
    """A client did not answer in time, without any error."""


class NotReached(Absent):
    """A client was left out on purpose, by the schedule's dropout."""


@dataclass
class Faulty(Wrapper):
    """Loses calls and replies on purpose: the same ones in every run with the same seed."""

    seed: int
    """The seed of the run."""
    dropout: float
    """The probability that a client is not reached in a round."""
    stragglers: float
    """The probability that a client does its work but answers too late."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls`, except for the lost ones; evaluation is not affected."""
        lost = {
            call.client
            for call in calls
            if not call.evaluation
            and happens(self.dropout, self.seed, call.round, call.client, "dropout")
        }
        replies = self.engine.deliver([call for call in calls if call.client not in lost])
        for call in calls:
            if call.client in lost:
                yield Reply(call.client, error=NotReached(call.client, "dropped out (injected)"))
                continue
            reply = next(replies)
            # Only the algorithm's own calls take long enough for an answer to be late.
            works = not call.evaluation and call.of_algorithm
            if works and happens(self.stragglers, self.seed, call.round, call.client, "straggler"):
                reply = Reply(call.client, error=Absent(call.client, "was too late (injected)"))
            yield reply


@dataclass
class Policed(Wrapper):
    """Handles errors of clients: stops the run, goes on without the client, or asks it again.

    A client that is absent or whose answer was refused never stops a run: the round goes on
    without it, and the user is told.
    """

    on_error: ErrorPolicy
    """What to do about errors."""
    retries: int
    """How often a client is asked again, with `on_error = "retry"`."""
    tell: Callable[[ClientFailed], Any]
    """Reports an error of a client without which the round goes on."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Delivers `calls` and handles errors by the policy.

        Raises:
            ClientFailed: If a client fails and the policy is to stop, or repeated calls fail too.
        """
        for call, reply in zip(calls, self._replies(calls), strict=True):
            yield self._judged(call, reply)

    def _replies(self, calls: Sequence[Call]) -> Iterable[Reply]:
        """The replies, complete if calls may be repeated: an engine has one delivery at a time."""
        replies = self.engine.deliver(calls)
        return list(replies) if self.on_error == "retry" else replies

    def _judged(self, call: Call, reply: Reply) -> Reply:
        error = reply.error
        if error is not None and self.on_error == "retry" and not isinstance(error, Absent):
            reply = self._again(call, reply)
            error = reply.error
        if error is None:
            return reply
        if self.on_error != "skip" and not isinstance(error, Absent | RefusedReply):
            raise error
        self.tell(error)
        return reply

    def _again(self, call: Call, reply: Reply) -> Reply:
        for _ in range(self.retries):
            (reply,) = self.engine.deliver([call])
            if reply.error is None:
                break
        return reply
