"""Clients in the actors of a Ray cluster, or of a small one that is started on this machine."""

from __future__ import annotations

import logging
import os
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from consort.core.messages import Call, Reply, common_keys
from consort.core.wire import encode
from consort.engines.choice import Origin
from consort.engines.host import ClientHost
from consort.engines.remote import Answer, Chunk, FarSide, read_answers, write_order, write_plan
from consort.errors import ClientFailed, Failure, UsageError

_AHEAD = 4  # chunks per actor that may be finished before their turn to be yielded comes
_ATTEMPTS = 3  # of a chunk whose actor dies every time
_SMALL = 64 << 10  # bytes that travel with each call; more are put into the object store, once
_PATIENCE = 60.0  # seconds after which the user is told that no actor has started

log = logging.getLogger(__name__)


class Cluster:
    """The actors of this process on a cluster; they outlive runs, so data are loaded once.

    One that died is replaced, and the new one takes part as soon as the cluster has room for it;
    until then the others do its work. All of them end with this process.
    """

    def __init__(self, actors: int, threads: int, address: str | None) -> None:
        self.ray = _connected(address, actors * threads)
        self._kind = self.ray.remote(num_cpus=threads, max_restarts=0)(FarSide)
        self.actors = [self._kind.remote() for _ in range(actors)]

    def replace(self, dead: Any) -> Any:
        """A new actor in the place of one that no longer answers."""
        self.ray.kill(dead)  # it may merely be out of reach
        new = self._kind.remote()
        self.actors[self.actors.index(dead)] = new
        return new


cluster = lru_cache(maxsize=1)(Cluster)
"""The same actors for all runs of a command."""


def _connected(address: str | None, cores: int) -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # before the import: nothing is reported
    try:
        import ray
    except ImportError as error:
        raise UsageError("Ray is not installed: pip install 'fedconsort[ray]'") from error
    if ray.is_initialized():
        return ray
    own: dict[str, Any] = {} if address else {"num_cpus": cores, "include_dashboard": False}
    try:
        with warnings.catch_warnings(action="ignore"):  # they say what the error says
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **own)
    except Exception as error:  # Ray raises all kinds of them
        reason = str(error).strip().partition("\n")[0]
        where = address or "this machine"
        hint = " (if the cluster has a token, set RAY_AUTH_MODE=token)" if "://" in where else ""
        raise Failure(f"Ray at {where} does not answer: {reason}{hint}") from error
    return ray


@dataclass(frozen=True)
class Job:
    """What an actor is busy with: a chunk of calls or, without one, getting ready."""

    actor: Any = None
    number: int = -1
    chunk: Chunk = ()
    attempt: int = 1


class Ray:
    """Hands calls to actors as these become free; yields replies in call order.

    Calls of an actor that died are given to another one. Only this process writes down what
    clients remember, when their replies are yielded.
    """

    def __init__(self, host: ClientHost, origin: Origin, count: int, address: str | None) -> None:
        self.host = host
        self.cluster = cluster(count, host.federation.compute.threads, address)
        self._ray = self.cluster.ray
        self._plan = write_plan(host, origin)
        self._busy: dict[Any, Job] = {}
        self._deliveries = 0
        for actor in self.cluster.actors:
            self._prepare(Job(actor))
        while not self._idle():  # so that no round has to wait for the data to be loaded
            deque(self._collected())

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Keeps all actors busy, but not far ahead of what has been yielded."""
        chunks = self.host.chunks(calls)
        common = common_keys(calls)
        self._deliveries += 1
        shared = self._stored(encode({key: calls[0].payload[key] for key in common}))
        waiting = deque(Job(number=number, chunk=chunk) for number, chunk in enumerate(chunks))
        finished: dict[int, list[Answer]] = {}
        try:
            for current, chunk in enumerate(chunks):
                while current not in finished:
                    for actor in self._idle():
                        ahead = current + _AHEAD * len(self.cluster.actors)
                        if waiting and waiting[0].number < ahead:
                            self._start(replace(waiting.popleft(), actor=actor), shared, common)
                    for job, answers in self._collected():
                        if answers is None:
                            waiting.appendleft(job)
                        else:
                            finished[job.number] = answers
                for call, (reply, state) in zip(chunk, finished.pop(current), strict=True):
                    if state:
                        self.host.store.write(call.client, call.stamp, state)
                    yield reply
        finally:  # what is still under way is wanted no more
            self._busy = {ref: job for ref, job in self._busy.items() if not job.chunk}

    def close(self) -> None:
        """Leaves the actors to the next run; they end with this process."""
        self._busy.clear()

    def _stored(self, data: bytes) -> Any:
        return data if len(data) < _SMALL else self._ray.put(data)

    def _idle(self) -> list[Any]:
        busy = [job.actor for job in self._busy.values()]
        return [actor for actor in self.cluster.actors if actor not in busy]

    def _prepare(self, job: Job) -> None:
        self._busy[job.actor.prepare.remote(self._plan)] = job

    def _start(self, job: Job, shared: Any, common: set[str]) -> None:
        order = write_order(job.chunk, self._deliveries, common, self.host.store)
        self._busy[job.actor.answer.remote(shared, order)] = job

    def _collected(self) -> Iterator[tuple[Job, list[Answer] | None]]:
        """Waits for an actor; what it answered, or nothing if its chunk must be asked again."""
        ready, _ = self._ray.wait(list(self._busy), timeout=_PATIENCE)
        if not ready and not any(job.chunk for job in self._busy.values()):
            log.warning("no Ray actor has started yet: has the cluster a free core?")
        for ref in ready:
            job = self._busy.pop(ref)
            try:
                result = self._ray.get(ref)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError:
                yield from self._after_death(job)
                continue
            if job.chunk:
                yield job, read_answers(result)
            elif result:
                raise Failure(f"a Ray actor cannot take part. {result}")

    def _after_death(self, job: Job) -> Iterator[tuple[Job, list[Answer] | None]]:
        last = job.attempt == _ATTEMPTS
        clients = ", ".join(call.client for call in job.chunk)
        reason = "its Ray actor died (killed, out of memory, or its node is gone)"
        if last and not job.chunk:
            raise Failure("Ray actors die while they load their data: use fewer --workers")
        new = self.cluster.replace(job.actor)
        self._prepare(Job(new, attempt=1 if job.chunk else job.attempt + 1))
        if last:
            yield (
                job,
                [(Reply(c.client, error=ClientFailed(c.client, reason)), b"") for c in job.chunk],
            )
        elif job.chunk:
            log.warning("client %s is asked again: %s", clients, reason)
            yield replace(job, attempt=job.attempt + 1), None
