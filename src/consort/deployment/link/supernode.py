"""Runs Flower's client, the SuperNode, as a child process, and receives its messages."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.common.serde import context_to_proto
from flwr.proto.runtime_pb2 import AcquireTaskRequest, PushTaskOutputRequest
from flwr.supercore.inflatable.inflatable_utils import ObjectPullError, ObjectPushError
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.run import RunNotRunningException as RunNotRunning
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from consort.core.files import write_file
from consort.deployment.link.programs import (
    end_program,
    free_port,
    readable_once,
    start_program,
)
from consort.deployment.link.runtime import (
    Disconnected,
    RetryPolicy,
    connect_executor,
    parts_of,
    record,
    start_heartbeat,
)
from consort.engines.flower import Parts
from consort.errors import Failure

_SUPERNODE = """
import sys, time
from types import SimpleNamespace
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode
from consort.deployment.link.polling import poll_often

poll_often()
start_client_internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.5)))
sys.argv[0] = "flower-supernode"
flower_supernode()
"""
"""The command `flower-supernode`, polling for messages twice a second instead of every three
seconds.
"""

_NOT_ADMITTED = (
    "the server does not accept this key: it is not admitted yet, was revoked, or has expired"
)
_MEANINGS = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not signed by the authority "
    "that this client trusts: check the address of the server",
    "401 Unauthorized": _NOT_ADMITTED,
    "[code: 2004]": "another client with this name is connected, or the server has not yet "
    "noticed that this client was disconnected (this takes up to a minute)",
}
"""Texts in the log of a SuperNode that ended, and what they mean."""


class SuperNode:
    """Flower's client as a child process.

    Args:
        server: HOST:PORT of the server.
        key: The private key of this client, in the form that a SuperNode reads.
        authority: The certificate that verifies the server.
        folder: Where its secret and its log are kept.
    """

    def __init__(self, server: str, key: bytes, authority: Path, folder: Path) -> None:
        self.server, self._key, self.authority, self.folder = server, key, authority, folder
        self.process: subprocess.Popen[bytes] | None = None
        self.secret = folder / "executor.secret"
        self.log = folder / "supernode.log"
        self._executor: RuntimeHttpClient | None = None

    def start(self) -> None:
        """Starts the process with a new secret and on a free port."""
        write_file(self.secret, os.urandom(32))
        self.log.unlink(missing_ok=True)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        with readable_once(self._key) as (key, inherited):
            self.process = start_program(
                _SUPERNODE,
                f"--superlink={self.server}",
                f"--root-certificates={self.authority}",
                f"--auth-supernode-private-key={key}",
                f"--superexec-auth-secret-file={self.secret}",
                "--isolation=process",
                f"--port={port}",
                log=self.log,
                inherited=[inherited],
            )
        self._executor = connect_executor(
            self.address, self.secret.read_bytes(), None, RetryPolicy(0)
        )

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def connected(self) -> bool:
        """Whether the server has accepted the connection."""
        return self.log.exists() and "SuperNode ID" in self.log.read_text(errors="replace")

    def why_not(self) -> str:
        """Why the process ended, in one sentence."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        for sign, meaning in _MEANINGS.items():
            if sign in text:
                return meaning
        if not self.connected and "terminated gracefully" in text:  # Flower logs no reason
            return _NOT_ADMITTED
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return "the connection was lost" if self.connected else f"Flower: {' '.join(lines[-3:])}"

    def next_message(self, seconds: float = 1.0) -> IncomingMessage | None:
        """Waits for the next message of the server.

        Args:
            seconds: How long to wait.

        Returns:
            The message, or `None` if there was none in this time.
        """
        end = time.monotonic() + seconds
        request = AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
        try:
            while self._executor and time.monotonic() < end:
                token = self._executor.AcquireTask(request).token
                if token:
                    return IncomingMessage(self.address, token)
                time.sleep(0.05)
        except (Failure, RunNotRunning, RuntimeError, ObjectPullError):
            time.sleep(0.2)  # the process is starting, or the run or the message has just ended
        return None

    def close(self) -> None:
        """Terminates the process, so that the server sees the client as disconnected."""
        if self._executor:
            self._executor.close()
        end_program(self.process)


class IncomingMessage:
    """A message from the server that has not been answered yet.

    Args:
        address: HOST:PORT of the SuperNode.
        token: The token of the task.
    """

    def __init__(self, address: str, token: str) -> None:
        retry: Any = RetryPolicy(10)
        self._client = RuntimeHttpClient.from_server_address(
            address,
            True,
            None,
            [
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(token),
            ],
            retry_invoker=retry,
        )
        self._heartbeat = start_heartbeat(self._client)
        try:
            self._message, self._context, _, _ = pull_task_input(self._client)
        except BaseException:
            self._disconnect()  # stops the heartbeat for a message that did not arrive
            raise
        self.parts = parts_of(self._message.content)

    def answer(self, parts: Parts) -> None:
        """Sends the reply.

        Raises:
            Disconnected: If the deadline is over and Flower no longer accepts it.
        """
        try:
            push_message(
                self._client, Message(record(parts), reply_to=self._message), self._context
            )
            self._client.PushTaskOutput(
                PushTaskOutputRequest(
                    context=context_to_proto(self._context), sub_status=SubStatus.COMPLETED
                )
            )
        except ObjectPushError as error:
            raise Disconnected("the deadline is over") from error
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        self._heartbeat._stop_event.set()
        self._client.close()
