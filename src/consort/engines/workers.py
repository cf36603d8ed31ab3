"""Clients in several processes on this machine, one thread each."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from consort.core.messages import Call, Payload, Reply, common_keys
from consort.engines.arena import Arena, Frame
from consort.engines.host import ClientHost
from consort.errors import ClientFailed, UsageError

Chunk = Sequence[Call]
_PR_SET_PDEATHSIG = 1
_AHEAD = 4  # chunks per worker that may be finished before their turn to be yielded comes


class Worker:
    """One forked process with its own stretch of shared memory in each direction."""

    def __init__(self, host: ClientHost, broadcast: Arena, strangers: Sequence[Connection]) -> None:
        self.down, self.up = Arena(), Arena()
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=_serve,
            args=(host, theirs, broadcast, self.down, self.up, [*strangers, self.pipe]),
            daemon=True,
        )
        with _interrupts_held_back():
            self.process.start()
        theirs.close()
        self.chunk: Chunk = ()
        self.number = -1

    def start(self, number: int, chunk: Chunk, shared: Frame, common: set[str]) -> None:
        """Hands a chunk of calls over."""
        self.number, self.chunk = number, chunk
        own = [{k: v for k, v in call.payload.items() if k not in common} for call in chunk]
        calls = [call.header for call in chunk]
        order = {"calls": calls, "own": self.down.write(own), "shared": shared}
        with suppress(BrokenPipeError):  # a dead worker is noticed by `finish`
            _send(self.pipe, order)

    def finish(self) -> list[Reply]:
        """Fetches the replies; if the process is gone, they are errors."""
        try:
            answer = _receive(self.pipe)
        except (EOFError, ConnectionResetError):
            self.process.join()
            reason = "its worker process died (killed, or out of memory): use fewer --workers"
            return [Reply(c.client, error=ClientFailed(c.client, reason)) for c in self.chunk]
        contents = self.up.read_copy(answer["contents"])
        return [
            Reply(call.client, content, ClientFailed(*error) if error else None, *work)
            for call, content, error, work in zip(
                self.chunk, contents, answer["errors"], answer["work"], strict=True
            )
        ]

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.is_alive()


class Workers:
    """Hands calls to forked processes as these become free; yields replies in call order.

    The processes are forked from this one, so data and models that are loaded before are
    shared, not copied.
    """

    def __init__(self, host: ClientHost, count: int) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise UsageError("this system cannot fork processes: use --workers 1")
        self.host = host
        self.broadcast = Arena()
        self.workers: list[Worker] = []
        self._deliveries = 0
        for _ in range(count):
            self.workers.append(self._new_worker())

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        """Keeps all workers busy, but not far ahead of what has been yielded."""
        chunks = self.host.chunks(calls)
        common = common_keys(calls)
        self._deliveries += 1
        frame = self.broadcast.write({key: calls[0].payload[key] for key in common})
        shared = frame | {"delivery": self._deliveries}
        waiting = deque(enumerate(chunks))
        finished: dict[int, list[Reply]] = {}
        busy: dict[Any, Worker] = {}
        try:
            for current in range(len(chunks)):
                while current not in finished:
                    for worker in self.workers:
                        ahead = waiting and waiting[0][0] < current + _AHEAD * len(self.workers)
                        if worker.pipe not in busy and ahead:
                            worker.start(*waiting.popleft(), shared, common)
                            busy[worker.pipe] = worker
                    for pipe in wait(list(busy)):
                        worker = busy.pop(pipe)
                        finished[worker.number] = self._collect(worker)
                yield from finished.pop(current)
        finally:
            for worker in busy.values():
                if worker in self.workers:  # not if the engine was closed meanwhile
                    self._collect(worker)

    def close(self) -> None:
        """Ends the processes."""
        for worker in self.workers:
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join(timeout=5)
            worker.process.kill()
        self.workers.clear()

    def _new_worker(self) -> Worker:
        return Worker(self.host, self.broadcast, [worker.pipe for worker in self.workers])

    def _collect(self, worker: Worker) -> list[Reply]:
        replies = worker.finish()
        if not worker.alive:
            self.workers.remove(worker)
            worker.pipe.close()
            self.workers.append(self._new_worker())
        return replies


def _serve(
    host: ClientHost,
    pipe: Connection,
    broadcast: Arena,
    down: Arena,
    up: Arena,
    strangers: Sequence[Connection],
) -> None:
    """The life of a worker: it ends when the other end of its pipe does."""
    _die_with_parent()
    for stranger in strangers:
        stranger.close()
    seen = 0
    shared: Payload = {}
    while True:
        try:
            order = _receive(pipe)
        except (EOFError, ConnectionError):
            return
        if order["shared"]["delivery"] != seen:
            seen, shared = order["shared"]["delivery"], broadcast.read(order["shared"])
        calls = [
            Call.from_header(header, shared | own)
            for header, own in zip(order["calls"], down.read(order["own"]), strict=True)
        ]
        replies = host.answer(calls)
        errors = [r.error and [r.error.client, r.error.reason, r.error.traceback] for r in replies]
        contents = up.write([reply.content for reply in replies])
        work = [(reply.seconds, reply.flops) for reply in replies]
        try:
            _send(pipe, {"contents": contents, "errors": errors, "work": work})
        except ConnectionError:
            return


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """What is forked meanwhile never hears of Ctrl-C, from its first moment on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_with_parent() -> None:
    """Ends this process in the middle of a call, too: a resumed run must be the only writer."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _send(pipe: Connection, message: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def _receive(pipe: Connection) -> Any:
    return json.loads(pipe.recv_bytes())
