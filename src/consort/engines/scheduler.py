"""Hands chunks of calls to processes and yields their answers in the order of the calls.

Forked workers and Ray actors share this. They differ in what a process is and in how calls and
answers travel: through shared memory, or as objects of a cluster.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from consort.core.messages import Call, Payload, Reply, common_keys
from consort.engines.host import ClientHost
from consort.engines.segments import Place
from consort.errors import ClientFailed

Process = TypeVar("Process")
Chunk = Sequence[Call]
Order = dict[str, Any]
"""A chunk of calls as plain values and tensors, without what a whole delivery has in common."""
Answer = tuple[Reply, bytes | Place]
"""A reply, and the client's new state, or its place if the process has written it down itself."""

_AHEAD = 4  # chunks per process that may be finished before their turn to be yielded comes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What a process is busy with."""

    number: int
    chunk: Chunk
    attempt: int = 1


class Scheduler(ABC, Generic[Process]):
    """An engine that keeps several processes busy.

    Args:
        host: Knows the clients, and which calls are answered together.
    """

    attempts = 1
    """How often a chunk is handed out whose process dies every time."""
    death: str
    """What is said about a client whose process died."""

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.delivery = 0

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Keeps all processes busy, but not far ahead of what has been yielded."""
        chunks = self.host.chunks(calls)
        common = common_keys(calls)
        self.delivery += 1
        self._broadcast({key: calls[0].payload[key] for key in common})
        waiting = deque(Job(number, chunk) for number, chunk in enumerate(chunks))
        finished: dict[int, list[Answer]] = {}
        interrupted = False
        try:
            for current, chunk in enumerate(chunks):
                while current not in finished:
                    for process in self._idle():
                        if waiting and waiting[0].number < current + _AHEAD * self._count():
                            self._start(process, waiting.popleft(), common)
                    for job, answers in self._collect():
                        if answers is None and job.attempt < self.attempts:
                            waiting.appendleft(self._again(job))
                        else:
                            finished[job.number] = answers or self._errors(job.chunk)
                for call, (reply, state) in zip(chunk, finished.pop(current), strict=True):
                    if state:
                        self.host.store.write(call.client, call.stamp, state)
                    yield reply
        except (KeyboardInterrupt, SystemExit):
            interrupted = True  # perhaps a job was noted and not handed out: nobody may wait for it
            raise
        finally:
            if not interrupted:
                self._abandon()

    def _again(self, job: Job) -> Job:
        clients = ", ".join(call.client for call in job.chunk)
        log.warning("client %s is asked again: %s", clients, self.death)
        return replace(job, attempt=job.attempt + 1)

    def _errors(self, chunk: Chunk) -> list[Answer]:
        return [
            (Reply(call.client, error=ClientFailed(call.client, self.death)), b"") for call in chunk
        ]

    @abstractmethod
    def close(self) -> None:
        """Lets the processes go."""

    @abstractmethod
    def _count(self) -> int:
        """The number of processes, idle or not."""

    @abstractmethod
    def _idle(self) -> list[Process]:
        """The processes that can take a job now."""

    @abstractmethod
    def _broadcast(self, common: Payload) -> None:
        """Makes ready what all calls of this delivery have in common."""

    @abstractmethod
    def _start(self, process: Process, job: Job, common: set[str]) -> None:
        """Hands a job over, without the entries of payloads that are common to all."""

    @abstractmethod
    def _collect(self) -> Iterator[tuple[Job, list[Answer] | None]]:
        """Waits for processes; yields jobs with their answers, or with none if the process died.

        A process that died is replaced.
        """

    @abstractmethod
    def _abandon(self) -> None:
        """Nobody wants the answers any more that are still under way."""


class Responder:
    """Answers orders in the process where the clients are.

    Args:
        host: The clients.
    """

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self._delivery = 0
        self._shared: Payload = {}

    def answer(
        self, order: Order, shared: Callable[[], Payload]
    ) -> list[tuple[Payload, list[Any]]]:
        """Answers a chunk of calls.

        Args:
            order: What `order_of` made of the chunk.
            shared: Reads what the calls of a delivery have in common, once in a delivery.

        Returns:
            For each call the content of the reply, and the rest of it as plain values: what
            `reply_of` reads.
        """
        if order["delivery"] != self._delivery:
            self._delivery, self._shared = order["delivery"], shared()
        calls = [
            Call.from_header(header, self._shared | own)
            for header, own in zip(order["calls"], order["own"], strict=True)
        ]
        return [(reply.content, _rest(reply)) for reply in self.host.answer(calls)]


def order_of(chunk: Chunk, delivery: int, common: set[str]) -> Order:
    """A chunk of calls, to be sent to a `Responder`."""
    own = [{k: v for k, v in call.payload.items() if k not in common} for call in chunk]
    return {"delivery": delivery, "calls": [call.header for call in chunk], "own": own}


def reply_of(content: Payload, rest: Sequence[Any]) -> Reply:
    """The reply that a `Responder` sent."""
    client, error, *work = rest
    return Reply(client, content, ClientFailed(*error) if error else None, *work)


def _rest(reply: Reply) -> list[Any]:
    error = reply.error and [reply.error.client, reply.error.reason, reply.error.traceback]
    return [reply.client, error, reply.seconds, reply.flops]
