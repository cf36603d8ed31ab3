"""How this process talks to Flower's: with patience, as an executor, in bytes."""

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

from consort.deployment.link.polling import ask_often
from consort.engines.flower import Parts
from consort.errors import Failure

ask_often()
logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("flwr").setLevel(logging.ERROR)

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class Interrupted(Failure):
    """The other side forgot us; what was under way is void."""


class Patient:
    """Repeats a request while the other side cannot be reached."""

    def __init__(self, seconds: float, heal: Callable[[], Any] = lambda: None) -> None:
        self.seconds = seconds
        self.heal = heal

    def invoke(self, request: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Flower's own retries would end this process when a token is no longer known."""
        end = time.monotonic() + self.seconds
        while True:
            try:
                return request(*arguments, **options)
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status in (401, 403):
                    raise Interrupted(f"Flower answered {status}") from error
                if status not in (502, 503, 504) or time.monotonic() > end:
                    raise Failure(f"Flower answered {status}: {error.response.text}") from error
            except httpx.TransportError as error:
                if time.monotonic() > end:
                    raise Failure(f"Flower cannot be reached: {error}") from error
            self.heal()
            time.sleep(0.2)


ENDED = (Interrupted, RunNotRunning)
"""What says that Flower has given up on the run."""


def as_executor(
    address: str, secret: bytes, authority: bytes | None, patient: Any
) -> RuntimeHttpClient:
    """A connection on which tasks are taken over, as Flower's own executors do."""
    return RuntimeHttpClient.from_server_address(
        address,
        authority is None,
        authority,
        [
            RuntimeVersionHttpInterceptor(component_name="SuperExec"),
            SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[_ACQUIRE]),
        ],
        retry_invoker=patient,
    )


def heartbeat(client: RuntimeHttpClient) -> HeartbeatSender:
    """Shows Flower that somebody is at work."""

    def beat() -> bool:
        with suppress(Failure):  # whoever needs the connection next will notice
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    return sender


def record(parts: Parts) -> RecordDict:
    """Bytes as arrays, because Flower cuts these into pieces."""
    made = RecordDict()
    for name, data in parts.items():
        made[name] = ArrayRecord({"bytes": Array("uint8", (len(data),), "raw", data)})
    return made


def parts_of(record: RecordDict) -> Parts:
    """The bytes again."""
    return {
        name: entry["bytes"].data
        for name, entry in record.items()
        if isinstance(entry, ArrayRecord)
    }
