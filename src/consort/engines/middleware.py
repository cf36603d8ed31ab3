"""What is done around every exchange: counting, checking, losing on purpose, handling errors.

Each wraps an engine and is one, so algorithms never see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from consort.core.engine import Engine
from consort.core.messages import Call, Payload, Reply
from consort.core.wire import NamedTensor, check, tensors_in
from consort.errors import ClientFailed, Refused
from consort.federation.participation import happens

ErrorPolicy = Literal["stop", "skip", "retry"]


def bytes_by_role(tensors: Iterable[NamedTensor]) -> dict[str, int]:
    """The size of all tensors of a payload, summed by the role its name begins with.

    Plain numbers and text count as nothing: they are small, and every engine writes them in
    its own way.
    """
    sizes: dict[str, int] = {}
    for name, tensor in tensors:
        role = name.split(".", 1)[0] or "other"
        sizes[role] = sizes.get(role, 0) + tensor.nbytes
    return sizes


@dataclass
class Wrapper:
    """Passes everything on."""

    engine: Engine

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Passes the calls on."""
        return self.engine.deliver(calls)

    def close(self) -> None:
        """Closes the engine inside."""
        self.engine.close()


@dataclass
class Metered(Wrapper):
    """Tells what really went down and up with every reply."""

    record: Callable[[Call, Reply, dict[str, int], dict[str, int]], Any]

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Reports (call, reply, bytes down, bytes up) for every reply."""
        down = _Remembering()
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            self.record(call, reply, down.sizes(call.payload), bytes_by_role(reply.tensors))
            yield reply


class _Remembering:
    """Sizes of payloads, measured once while clients are sent the same objects."""

    def __init__(self) -> None:
        self.key: tuple[int, ...] = ()
        self.value: dict[str, int] = {}

    def sizes(self, payload: Payload) -> dict[str, int]:
        key = tuple(map(id, payload.values()))
        if key != self.key:
            self.key, self.value = key, bytes_by_role(tensors_in(payload))
        return self.value


@dataclass
class Checked(Wrapper):
    """Refuses replies with wrong names, shapes or types, or with numbers that are not finite."""

    shapes: Callable[[str], Mapping[str, tuple[int, ...]]]

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Turns a reply that cannot be right into an error reply."""
        for reply in self.engine.deliver(calls):
            try:
                if reply.error is None:
                    check(reply.tensors, self.shapes(reply.client))
            except Refused as refusal:
                reply = Reply(reply.client, error=RefusedReply(reply.client, str(refusal)))
            yield reply


class RefusedReply(ClientFailed):
    """A client answered, but its answer was not taken in."""


class Absent(ClientFailed):
    """A client did not answer in time; nothing is wrong with it."""


@dataclass
class Faulty(Wrapper):
    """Loses calls and replies on purpose, the same ones in every run of a seed."""

    seed: int
    dropout: float
    """Probability that a client is not reached in a round."""
    stragglers: float
    """Probability that a client works, but answers too late to count."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Evaluation is never disturbed."""
        lost = {
            call.client
            for call in calls
            if not call.evaluation
            and happens(self.dropout, self.seed, call.round, call.client, "dropout")
        }
        replies = self.engine.deliver([call for call in calls if call.client not in lost])
        for call in calls:
            if call.client in lost:
                yield Reply(call.client, error=Absent(call.client, "dropped out (injected)"))
                continue
            reply = next(replies)
            # Only the algorithm's own calls take long enough for an answer to be late.
            works = not call.evaluation and call.of_algorithm
            if works and happens(self.stragglers, self.seed, call.round, call.client, "straggler"):
                reply = Reply(call.client, error=Absent(call.client, "was too late (injected)"))
            yield reply


@dataclass
class Policed(Wrapper):
    """Decides what an error of a client means: stop, go on without it, or ask again.

    A client that is merely absent or whose answer was refused never stops a run: the round goes
    on without it, and the user is told.
    """

    on_error: ErrorPolicy
    retries: int
    tell: Callable[[ClientFailed], Any]

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Passes good replies on; errors as the policy says."""
        for call, reply in zip(calls, self._replies(calls), strict=True):
            yield self._judged(call, reply)

    def _replies(self, calls: Sequence[Call]) -> Iterable[Reply]:
        """All of them first where some may be asked again: an engine delivers once at a time."""
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
