"""Sends messages from the server to its clients, and fetches their replies."""

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

from consort.deployment.link.runtime import RUN_ENDED, parts_of, record, start_heartbeat
from consort.deployment.link.superlink import SuperLink
from consort.engines.flower import Arrival, Parts
from consort.errors import Failure


class FlowerGrid:
    """Sends messages to nodes and fetches replies, for the one Flower run of this process.

    Flower ends a run after a minute without a heartbeat, for example when this machine was
    suspended. A new run is started then, and messages under way are lost, as with a broken
    connection.

    Args:
        link: Flower's server.
    """

    def __init__(self, link: SuperLink) -> None:
        self._link = link
        self._open()

    def online(self) -> set[int]:
        """The nodes that are connected now."""
        return set(self._repeat_until_done(lambda: self._grid.get_node_ids()))

    def push(self, letters: Sequence[tuple[int, Parts]], seconds: float) -> list[str]:
        """Sends a message to each node; parts that several messages share are uploaded once.

        Args:
            letters: Nodes, each with the parts of its message.
            seconds: How long the messages are valid.

        Returns:
            The id of each message.
        """

        def send() -> list[str]:
            messages = [Message(record(p), node, "query", ttl=seconds) for node, p in letters]
            return list(self._grid.push_messages(messages))

        numbers: list[str] = self._repeat_until_done(send)
        return numbers

    def pull(self, ids: Iterable[str]) -> list[Arrival]:
        """Fetches the replies that have arrived since the last call.

        Args:
            ids: The ids of the messages whose replies are wanted.

        Returns:
            The replies; after a restart of the Flower run, every message counts as lost.
        """
        wanted = list(ids)
        try:
            return [_arrival(message) for message in self._grid.pull_messages(wanted)]
        except RUN_ENDED:
            self._reopen()
            return [Arrival(number, {}, "the server was interrupted") for number in wanted]

    def close(self) -> None:
        """Tells Flower that the run has finished, and disconnects."""
        self._link.retry.seconds = 0
        with suppress(Failure, RunNotRunning):
            self._grid._runtime_client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
            )
        self._disconnect()

    def _open(self) -> None:
        link = self._link
        self._grid = HttpGrid(link.address, False, link.authority, token=link.start_run())
        self._grid._retry_invoker = link.retry
        client = self._grid._runtime_client
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        self._grid.set_run(run_from_proto(task.run))
        self._heartbeat = start_heartbeat(client)

    def _repeat_until_done(self, work: Callable[[], Any]) -> Any:
        while True:
            try:
                return work()
            except RUN_ENDED:
                self._reopen()

    def _reopen(self) -> None:
        self._disconnect()
        self._open()

    def _disconnect(self) -> None:
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
