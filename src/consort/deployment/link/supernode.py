"""Flower's client as a child of this process, and the messages it receives."""

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

from consort.deployment.link.programs import end_program, free_port, start_program
from consort.deployment.link.runtime import (
    Interrupted,
    Patient,
    as_executor,
    heartbeat,
    parts_of,
    record,
)
from consort.engines.flower import Parts
from consort.errors import Failure

_SUPERNODE = """
import sys, time
from types import SimpleNamespace
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode
from consort.deployment.link.polling import ask_often

ask_often()
start_client_internal.time = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, 0.5)))
sys.argv[0] = "flower-supernode"
flower_supernode()
"""
"""The command, but it looks for messages twice a second, not every three seconds."""

_NOT_ADMITTED = (
    "the server does not admit this key: not yet, no longer (revoked), or it has expired"
)
_MEANINGS = {
    "CERTIFICATE_VERIFY_FAILED": "the server's certificate is not the one that this client was "
    "told to trust: is it the right server?",
    "401 Unauthorized": _NOT_ADMITTED,
    "[code: 2004]": "another client with this name is connected, or the server has not noticed "
    "yet that this one was gone (a minute)",
}
"""What a SuperNode says at its end, and what it means."""


class SuperNode:
    """Flower's client as a child of this process, and what is asked of it."""

    def __init__(self, server: str, key: Path, authority: Path, folder: Path) -> None:
        self.server, self.key, self.authority, self.folder = server, key, authority, folder
        self.process: subprocess.Popen[bytes] | None = None
        self.secret = folder / "executor.secret"
        self.log = folder / "supernode.log"
        self._executor: RuntimeHttpClient | None = None

    def start(self) -> None:
        """Starts the process with a secret and a port of its own."""
        self.secret.touch(mode=0o600)
        self.secret.write_bytes(os.urandom(32))
        self.log.unlink(missing_ok=True)
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.process = start_program(
            _SUPERNODE,
            f"--superlink={self.server}",
            f"--root-certificates={self.authority}",
            f"--auth-supernode-private-key={self.key}",
            f"--superexec-auth-secret-file={self.secret}",
            "--isolation=process",
            f"--port={port}",
            log=self.log,
        )
        self._executor = as_executor(self.address, self.secret.read_bytes(), None, Patient(0))

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    @property
    def connected(self) -> bool:
        """Whether the server has let it in."""
        return self.log.exists() and "SuperNode ID" in self.log.read_text(errors="replace")

    def why_not(self) -> str:
        """Why it ended, in one sentence."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        for sign, meaning in _MEANINGS.items():
            if sign in text:
                return meaning
        if not self.connected and "terminated gracefully" in text:  # Flower leaves without a word
            return _NOT_ADMITTED
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return "the connection broke" if self.connected else f"Flower: {' '.join(lines[-3:])}"

    def next_letter(self, seconds: float = 1.0) -> Letter | None:
        """What the server asks; waits a moment for it."""
        end = time.monotonic() + seconds
        request = AcquireTaskRequest(supported_task_types=["flwr-clientapp"])
        try:
            while self._executor and time.monotonic() < end:
                token = self._executor.AcquireTask(request).token
                if token:
                    return Letter(self.address, token)
                time.sleep(0.05)
        except (Failure, RunNotRunning, RuntimeError, ObjectPullError):
            time.sleep(0.2)  # it is starting, or the run or the message ended in this moment
        return None

    def close(self) -> None:
        """Ends the process, so that the server learns of it."""
        if self._executor:
            self._executor.close()
        end_program(self.process)


class Letter:
    """A message from the server that waits for its reply."""

    def __init__(self, address: str, token: str) -> None:
        patient: Any = Patient(10)
        self._client = RuntimeHttpClient.from_server_address(
            address,
            True,
            None,
            [
                RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"),
                RuntimeTokenHttpInterceptor(token),
            ],
            retry_invoker=patient,
        )
        self._heartbeat = heartbeat(self._client)
        try:
            self._message, self._context, _, _ = pull_task_input(self._client)
        except BaseException:
            self._leave()  # nobody is at work on what did not arrive
            raise
        self.parts = parts_of(self._message.content)

    def answer(self, parts: Parts) -> None:
        """Sends the reply."""
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
            raise Interrupted("Flower no longer takes it, since the deadline is over") from error
        finally:
            self._leave()

    def _leave(self) -> None:
        self._heartbeat._stop_event.set()
        self._client.close()
