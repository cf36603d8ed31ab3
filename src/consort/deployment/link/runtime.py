"""Connections from this process to Flower's: retries, executor tokens, heartbeats, bytes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, RecordDict
from flwr.proto.runtime_pb2 import SendTaskHeartbeatRequest
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.interceptors.http.superexec_auth import SuperExecAuthHttpInterceptor
from flwr.supercore.run import RunNotRunningException as RunNotRunning
from flwr.supercore.runtime import RuntimeHttpClient

from consort.deployment.link.polling import poll_often
from consort.engines.flower import Parts
from consort.errors import Failure

poll_often()
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("flwr").setLevel(logging.ERROR)

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class Disconnected(Failure):
    """Flower no longer knows this run or task; messages under way are lost."""


class RetryPolicy:
    """Repeats a request while Flower cannot be reached.

    Args:
        seconds: How long to try.
        recover: Is called before each repetition, for example to restart Flower.
    """

    def __init__(self, seconds: float, recover: Callable[[], Any] = lambda: None) -> None:
        self.seconds = seconds
        self.recover = recover

    def invoke(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Sends a request; Flower's own retries would end this process when a token is unknown.

        Raises:
            Disconnected: If Flower no longer knows the token.
            Failure: If Flower refuses the request, or cannot be reached in time.
        """
        end = time.monotonic() + self.seconds
        while True:
            try:
                return request(*arguments, **options)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status in (401, 403):
                    raise Disconnected(f"Flower answered {status}") from error
                if status not in (502, 503, 504) or time.monotonic() > end:
                    raise Failure(f"Flower answered {status}: {error.response.text}") from error
            except httpx.TransportError as error:
                if time.monotonic() > end:
                    raise Failure(f"Flower cannot be reached: {error}") from error
            self.recover()
            time.sleep(0.2)


RUN_ENDED = (Disconnected, RunNotRunning)
"""The errors that mean that Flower has ended the run."""


def connect_executor(
    address: str, secret: bytes, authority: bytes | None, retry: Any
) -> RuntimeHttpClient:
    """Connects as an executor, which may take over tasks as Flower's own executors do.

    Args:
        address: HOST:PORT of Flower.
        secret: The secret that Flower's executors share.
        authority: The certificate of the authority; without one, TLS is not used.
        retry: Repeats requests, such as a `RetryPolicy`.
    """
    return RuntimeHttpClient.from_server_address(
        address,
        authority is None,
        authority,
        [
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[_ACQUIRE]),
        ],
        retry_invoker=retry,
    )


def start_heartbeat(client: RuntimeHttpClient) -> HeartbeatSender:
    """Starts a thread that tells Flower regularly that the task is being worked on."""

    def beat() -> bool:
        with suppress(Failure):  # the next request on this connection reports the error
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    return sender


def record(parts: Parts) -> RecordDict:
    """The parts of a message as Flower's records; arrays, because Flower sends these in chunks."""
    made = RecordDict()
    for name, data in parts.items():
        made[name] = ArrayRecord({"bytes": Array("uint8", (len(data),), "raw", data)})
    return made


def parts_of(record: RecordDict) -> Parts:
    """The parts of a message that `record` packed."""
    return {
        name: entry["bytes"].data
        for name, entry in record.items()
        if isinstance(entry, ArrayRecord)
    }
