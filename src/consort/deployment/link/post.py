"""Messages from the server to its clients, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from flwr.app import Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import run_from_proto
from flwr.proto.runtime_pb2 import PullTaskInputRequest, PushTaskOutputRequest
from flwr.supercore.run import RunNotRunningException as RunNotRunning
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from consort.deployment.link.runtime import ENDED, heartbeat, parts_of, record
from consort.deployment.link.superlink import SuperLink
from consort.engines.flower import Arrival, Parts
from consort.errors import Failure


class Post:
    """Brings messages to nodes and replies back, for the one run of this process.

    Flower ends a run when it has heard nothing of it for a minute, such as after this machine was
    suspended. Then there is a new one, and what was under way is lost, as if a connection broke.
    """

    def __init__(self, link: SuperLink) -> None:
        self._link = link
        self._open()

    def online(self) -> set[int]:
        """The nodes that are connected now."""
        return set(self._insist(lambda: self._grid.get_node_ids()))

    def push(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:
        """Sends a message to each node; what is equal in several is sent to Flower once."""

        def send() -> list[str]:
            messages = [Message(record(p), node, "query", ttl=seconds) for node, p in letters]
            return list(self._grid.push_messages(messages))

        numbers: list[str] = self._insist(send)
        return numbers

    def pull(self, ids: Iterable[str]) -> list[Arrival]:
        """The replies that came in since they were last asked for."""
        wanted = list(ids)
        try:
            return [_arrival(message) for message in self._grid.pull_messages(wanted)]
        except ENDED:
            self._reopen()
            return [Arrival(number, {}, "the server was interrupted") for number in wanted]

    def close(self) -> None:
        """Tells Flower that the run is over."""
        self._link.patient.seconds = 0
        with suppress(Failure, RunNotRunning):
            self._grid._runtime_client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
            )
        self._leave()

    def _open(self) -> None:
        link = self._link
        self._grid = HttpGrid(link.address, False, link.authority, token=link.start_run())
        self._grid._retry_invoker = link.patient
        client = self._grid._runtime_client
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        self._grid.set_run(run_from_proto(task.run))
        self._heartbeat = heartbeat(client)

    def _insist(self, work: Callable[[], Any]) -> Any:
        while True:
            try:
                return work()
            except ENDED:
                self._reopen()

    def _reopen(self) -> None:
        self._leave()
        self._open()

    def _leave(self) -> None:
        self._heartbeat._stop_event.set()
        self._grid.close()


def _arrival(message: Message) -> Arrival:
    reply_to = message.metadata.reply_to_message_id
    if message.has_error():
        return Arrival(reply_to, {}, _reason(message.error))
    return Arrival(reply_to, parts_of(message.content))


def _reason(error: Any) -> str:
    if error.code == ErrorCode.NODE_UNAVAILABLE:
        return "its connection broke"
    return f"Flower: {error.reason} (code {error.code})"
