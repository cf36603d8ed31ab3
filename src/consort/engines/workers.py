"""Clients in several processes on this machine, one thread each."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from consort.core.messages import Payload, State
from consort.core.wire import encode
from consort.engines.arena import Arena, Frame
from consort.engines.forking import forked
from consort.engines.host import ClientHost
from consort.engines.scheduler import Answer, Job, Order, Responder, Scheduler, order_of, reply_of
from consort.engines.segments import Place
from consort.engines.states import Stamp, StateStore


class Worker:
    """One forked process with its own stretch of shared memory in each direction."""

    def __init__(self, host: ClientHost, broadcast: Arena, strangers: Sequence[Connection]) -> None:
        self.down, self.up = Arena(), Arena()
        self.process, self.pipe = forked(
            _serve, host, broadcast, self.down, self.up, strangers=strangers
        )
        self.job: Job | None = None

    def send(self, order: Order, shared: Frame) -> None:
        """Hands an order over; a process that is gone is noticed by `receive`."""
        with suppress(BrokenPipeError):
            _send(self.pipe, order | {"own": self.down.write(order["own"]), "shared": shared})

    def receive(self) -> list[Answer] | None:
        """Fetches the answers; there are none if the process is gone."""
        try:
            answer = _receive(self.pipe)
        except (EOFError, ConnectionResetError):
            self.process.join()
            return None
        contents = self.up.read_copy(answer["contents"])
        states = [Place(*state) if state else b"" for state in answer["states"]]
        replies = map(reply_of, contents, answer["rest"])
        return list(zip(replies, states, strict=True))


class Workers(Scheduler[Worker]):
    """Hands calls to forked processes as these become free; yields replies in call order.

    The processes are forked from this one, so data and models that are loaded before are
    shared, not copied.

    Args:
        host: The clients.
        count: The number of processes.

    Raises:
        UsageError: This system cannot fork processes.
    """

    death = "its worker process died (killed, or out of memory): use fewer --workers"

    def __init__(self, host: ClientHost, count: int) -> None:
        super().__init__(host)
        self.workers: list[Worker] = []
        self._arena, self._shared = Arena(), Frame()
        for _ in range(count):
            self._add_worker()

    def close(self) -> None:
        """Ends the processes."""
        for worker in self.workers:
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join(timeout=5)
            worker.process.kill()
        self.workers.clear()

    def _add_worker(self) -> None:
        strangers = [worker.pipe for worker in self.workers]
        self.workers.append(Worker(self.host, self._arena, strangers))

    def _count(self) -> int:
        return len(self.workers)

    def _idle(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is None]

    def _broadcast(self, common: Payload) -> None:
        self._shared = self._arena.write(common)

    def _start(self, worker: Worker, job: Job, common: set[str]) -> None:
        worker.job = job
        states = [self.host.store.find(call.client, call.before) or None for call in job.chunk]
        order = order_of(job.chunk, self.delivery, common) | {"states": states}
        worker.send(order, self._shared)

    def _collect(self) -> Iterator[tuple[Job, list[Answer] | None]]:
        busy = {worker.pipe: (worker, worker.job) for worker in self.workers if worker.job}
        for pipe in wait(list(busy)):
            worker, job = busy[pipe]  # type: ignore[index]
            answers, worker.job = worker.receive(), None
            if not worker.process.is_alive():
                self.workers.remove(worker)
                worker.pipe.close()
                self._add_worker()
            yield job, answers

    def _abandon(self) -> None:
        """Answers are fetched all the same: the next ones come through the same pipes."""
        while any(worker.job for worker in self.workers):
            deque(self._collect())


class Lent(StateStore):
    """States as a worker has them: it is told where to read, and tells where it has written.

    What it has written counts as soon as the process of the run knows of it.
    """

    def __init__(self, folder: Path | None) -> None:
        super().__init__(folder)
        self.written: dict[str, Place] = {}
        self._places: dict[str, Place | None] = {}

    def lend(self, clients: Sequence[str], places: Sequence[Sequence[Any] | None]) -> None:
        """Says where the states of the clients are that are called now."""
        found = [Place(*place) if place else None for place in places]
        self._places, self.written = dict(zip(clients, found, strict=True)), {}

    def find(self, client: str, before: Stamp) -> bytes | Place:  # noqa: ARG002
        """What the process of the run found for this call."""
        return self._places[client] or b""

    def save(self, client: str, stamp: Stamp, state: State) -> None:
        """Writes a state to the file of this process."""
        self.written[client] = self._segments.append(stamp[0], encode(state))


def _serve(pipe: Connection, host: ClientHost, broadcast: Arena, down: Arena, up: Arena) -> None:
    """The life of a worker: it ends when the other end of its pipe does."""
    store = host.store = Lent(host.store.folder)
    responder = Responder(host)
    while True:
        order = _receive(pipe)
        order["own"] = down.read(order["own"])
        store.lend([header[0] for header in order["calls"]], order["states"])
        answers = responder.answer(order, partial(broadcast.read, order["shared"]))
        contents = up.write([content for content, _ in answers])
        rest = [rest for _, rest in answers]
        states = [store.written.get(client) for client, *_ in rest]
        _send(pipe, {"contents": contents, "rest": rest, "states": states})


def _send(pipe: Connection, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def _receive(pipe: Connection) -> Any:
    return json.loads(pipe.recv_bytes())
