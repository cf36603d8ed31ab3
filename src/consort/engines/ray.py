"""Clients in the actors of a Ray cluster, or of a small one that is started on this machine."""

from __future__ import annotations

import logging
import os
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from consort.core.messages import Payload
from consort.core.wire import encode
from consort.engines.choice import Origin
from consort.engines.host import ClientHost
from consort.engines.remote import FarSide, read_answers, write_order, write_plan
from consort.engines.scheduler import Answer, Job, Scheduler
from consort.errors import Failure, UsageError

_GETTING_READY = Job(-1, ())
_SMALL = 64 << 10  # bytes that travel with each call; more are put into the object store, once
_PATIENCE = 60.0  # seconds after which the user is told that no actor has started

log = logging.getLogger(__name__)


class Cluster:
    """The actors of this process on a cluster; they outlive runs, so data are loaded once.

    One that died is replaced, and the new one takes part as soon as the cluster has room for it;
    until then the others do its work. All of them end with this process.
    """

    def __init__(self, actors: int, threads: int, address: str | None) -> None:
        self.ray = connected(address, actors * threads)
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


def connected(address: str | None, cores: int) -> Any:
    """The module `ray`, once this process is a part of a cluster.

    Args:
        address: Of the cluster; without it, one is started on this machine.
        cores: How many cores the one on this machine has.

    Raises:
        UsageError: Ray is not installed.
        Failure: The cluster does not answer.
    """
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


class Ray(Scheduler[Any]):
    """Hands calls to actors as these become free; yields replies in call order.

    Calls of an actor that died are given to another one. Only this process writes down what
    clients remember, when their replies are yielded.

    Args:
        host: The clients, as they are here.
        origin: How actors come by the same clients.
        count: The number of actors.
        address: Of the cluster; without it, one is started on this machine.

    Raises:
        UsageError: Ray is not installed.
        Failure: The cluster does not answer, or an actor cannot load its data.
    """

    attempts = 3
    death = "its Ray actor died (killed, out of memory, or its node is gone)"

    def __init__(self, host: ClientHost, origin: Origin, count: int, address: str | None) -> None:
        super().__init__(host)
        self.cluster = cluster(count, host.federation.compute.threads, address)
        self._ray = self.cluster.ray
        self._plan = write_plan(host, origin)
        self._shared: Any = b""
        self._busy: dict[Any, tuple[Any, Job]] = {}
        for actor in self.cluster.actors:
            self._prepare(actor, _GETTING_READY)
        while not self._idle():  # so that no round has to wait for the data to be loaded
            deque(self._collect())

    def close(self) -> None:
        """Leaves the actors to the next run; they end with this process."""
        self._busy.clear()

    def _count(self) -> int:
        return len(self.cluster.actors)

    def _idle(self) -> list[Any]:
        busy = [actor for actor, _ in self._busy.values()]
        return [actor for actor in self.cluster.actors if actor not in busy]

    def _prepare(self, actor: Any, job: Job) -> None:
        self._busy[actor.prepare.remote(self._plan)] = actor, job

    def _broadcast(self, common: Payload) -> None:
        data = encode(common)
        self._shared = data if len(data) < _SMALL else self._ray.put(data)

    def _start(self, actor: Any, job: Job, common: set[str]) -> None:
        order = write_order(job.chunk, self.delivery, common, self.host.store)
        self._busy[actor.answer.remote(self._shared, order)] = actor, job

    def _collect(self) -> Iterator[tuple[Job, list[Answer] | None]]:
        ready, _ = self._ray.wait(list(self._busy), timeout=_PATIENCE)
        if not ready and not any(job.chunk for _, job in self._busy.values()):
            log.warning("no Ray actor has started yet: has the cluster a free core?")
        for ref in ready:
            actor, job = self._busy.pop(ref)
            try:
                result = self._ray.get(ref)
            except self._ray.exceptions.RayTaskError:
                raise
            except self._ray.exceptions.RayError:
                self._replace(actor, job)
                if job.chunk:
                    yield job, None
                continue
            if job.chunk:
                yield job, read_answers(result)
            elif result:
                raise Failure(f"a Ray actor cannot take part. {result}")

    def _replace(self, dead: Any, job: Job) -> None:
        """Takes a new actor, unless several have died in a row while they got ready."""
        attempt = 1 if job.chunk else job.attempt + 1
        if attempt > self.attempts:
            raise Failure("Ray actors die while they load their data: use fewer --workers")
        self._prepare(self.cluster.replace(dead), replace(_GETTING_READY, attempt=attempt))

    def _abandon(self) -> None:
        self._busy = {ref: busy for ref, busy in self._busy.items() if not busy[1].chunk}
