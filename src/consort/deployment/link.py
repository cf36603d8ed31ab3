"""All that is used of Flower's inside, in one place: check it when flwr is upgraded.

Flower 1.41 would start a new process for every message. With `--isolation process` it leaves
that to others, and these are our own processes, which live as long as the run.
"""

from __future__ import annotations

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}

import ctypes
import hashlib
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.cli.build import build_fab_from_files
from flwr.common.constant import ErrorCode, SubStatus
from flwr.common.serde import context_to_proto, fab_to_proto, run_from_proto, user_config_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
)
from flwr.supercore.interceptors.http.superexec_auth import SuperExecAuthHttpInterceptor
from flwr.supercore.run import RunNotRunningException as RunNotRunning
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message

from consort.engines.flower import Arrival, Parts
from consort.errors import Failure

logging.getLogger("httpx").setLevel(logging.WARNING)
logging.getLogger("flwr").setLevel(logging.ERROR)

_PROJECT = b"""
[project]
name = "consort"
version = "1.0.0"
description = "Calls to the methods of an installed package"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "consort"

[tool.flwr.app.components]
serverapp = "consort:app"
clientapp = "consort:app"
"""
"""An app without code: the processes that answer have Consort installed."""

_SHORT = 5.0  # seconds; a SuperLink that lives no longer has something wrong with it
_RESTART = 300.0  # seconds that a SuperLink may take to be there, again
_SUPERLINK = """
import sys
from flwr.supercore import sql_mixin
from flwr.superlink.cli.flower_superlink import flower_superlink

patience = {"busy_timeout": "120000"}
sql_mixin.SQLITE_PRAGMAS = tuple((dict(sql_mixin.SQLITE_PRAGMAS) | patience).items())
sys.argv[0] = "flower-superlink"
flower_superlink()
"""
"""The command, but its threads wait for each other longer: else it loses replies when busy."""

_SUPERNODE = """
import sys, time
from types import SimpleNamespace
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode

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
_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_PR_SET_PDEATHSIG = 1


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


class SuperLink:
    """Flower's server as a child of this process, reachable from this machine only."""

    def __init__(self, credentials: Path, folder: Path) -> None:
        self.credentials = credentials
        self.folder = folder
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._launched = -_SHORT
        self._lock = threading.Lock()
        self._patient: Any = Patient(_RESTART, self.keep_alive)
        for old in folder.glob("superlink.db*"):
            old.unlink()  # what a run needs to go on is in its own checkpoints

    def keep_alive(self) -> None:
        """Starts the process, again if it died: its database survives it."""
        with self._lock:
            if self.process is None or self.process.poll() is not None:
                if time.monotonic() - self._launched < _SHORT:
                    raise Failure(f"Flower does not start: see {self.folder / 'superlink.log'}")
                self._launched = time.monotonic()
                self._launch()

    def _launch(self) -> None:
        files = {"certfile": "server.pem", "keyfile": "server.key", "ca-certfile": "ca.pem"}
        arguments = [f"--ssl-{name}={self.credentials / file}" for name, file in files.items()]
        self.process = _start(
            _SUPERLINK,
            *arguments,
            "--isolation=process",
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            f"--superexec-auth-secret-file={self.credentials / 'executor.secret'}",
            f"--database={self.folder / 'superlink.db'}",
            f"--port={self.port}",
            log=self.folder / "superlink.log",
            level="WARNING",  # else it notes every request
        )

    def register(self, name: str, public_key: bytes) -> int:
        """Lets a client's node in; returns the node's number."""
        with self._control() as control:
            request = RegisterNodeRequest(public_key=public_key, name=name)
            return int(control.RegisterNode(request).node_id)

    def open_run(self) -> Post:
        """A run of Flower's, in which messages can be sent."""
        return Post(self)

    def start_run(self) -> str:
        """Starts a run and becomes the process that carries it out; returns its token."""
        fab, _ = build_fab_from_files({"pyproject.toml": _PROJECT})
        with self._control() as control:
            control.StartRun(
                StartRunRequest(
                    fab=fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {})),
                    override_config=user_config_to_proto({}),
                    federation="",
                )
            )
        secret = (self.credentials / "executor.secret").read_bytes()
        request = AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        with _executor(self.address, secret, self._authority, self._patient) as executor:
            while not (token := executor.AcquireTask(request).token):
                time.sleep(0.05)
        return str(token)

    @property
    def _authority(self) -> bytes:
        return (self.credentials / "ca.pem").read_bytes()

    @contextmanager
    def _control(self) -> Any:
        client = ControlHttpClient.from_server_address(
            self.address,
            False,
            self._authority,
            [RuntimeVersionHttpInterceptor(component_name="flwr-cli")],
            retry_invoker=self._patient,
        )
        with client:
            yield client

    def close(self) -> None:
        """Ends the process."""
        _end(self.process)


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
            messages = [Message(_record(p), node, "query", ttl=seconds) for node, p in letters]
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
        self._link._patient.seconds = 0
        with suppress(Failure, RunNotRunning):
            self._grid._runtime_client.PushTaskOutput(
                PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
            )
        self._leave()

    def _open(self) -> None:
        link = self._link
        self._grid = HttpGrid(link.address, False, link._authority, token=link.start_run())
        self._grid._retry_invoker = link._patient
        client = self._grid._runtime_client
        task = client.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = task.task_id, task.run.run_id
        TaskIdentity.node_id = task.context.node_id
        self._grid.set_run(run_from_proto(task.run))
        self._heartbeat = _heartbeat(client)

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
        self.process = _start(
            _SUPERNODE,
            f"--superlink={self.server}",
            f"--root-certificates={self.authority}",
            f"--auth-supernode-private-key={self.key}",
            f"--superexec-auth-secret-file={self.secret}",
            "--isolation=process",
            f"--port={port}",
            log=self.log,
        )
        self._executor = _executor(self.address, self.secret.read_bytes(), None, Patient(0))

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
        except (Failure, RunNotRunning, RuntimeError):
            time.sleep(0.2)  # it is starting, or the run ended in this moment
        return None

    def close(self) -> None:
        """Ends the process, so that the server learns of it."""
        if self._executor:
            self._executor.close()
        _end(self.process)


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
        self._heartbeat = _heartbeat(self._client)
        self._message, self._context, _, _ = pull_task_input(self._client)
        self.parts = _parts(self._message.content)

    def answer(self, parts: Parts) -> None:
        """Sends the reply."""
        try:
            push_message(
                self._client, Message(_record(parts), reply_to=self._message), self._context
            )
            self._client.PushTaskOutput(
                PushTaskOutputRequest(
                    context=context_to_proto(self._context), sub_status=SubStatus.COMPLETED
                )
            )
        finally:
            self._heartbeat._stop_event.set()
            self._client.close()


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _executor(
    address: str, secret: bytes, authority: bytes | None, patient: Any
) -> RuntimeHttpClient:
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


def _heartbeat(client: RuntimeHttpClient) -> HeartbeatSender:
    def beat() -> bool:
        with suppress(Failure):  # whoever needs the connection next will notice
            client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
        return True

    sender = HeartbeatSender(beat)
    sender.start()
    return sender


def _record(parts: Parts) -> RecordDict:
    """Bytes as arrays, because Flower cuts these into pieces."""
    record = RecordDict()
    for name, data in parts.items():
        record[name] = ArrayRecord({"bytes": Array("uint8", (len(data),), "raw", data)})
    return record


def _parts(record: RecordDict) -> Parts:
    return {
        name: entry["bytes"].data
        for name, entry in record.items()
        if isinstance(entry, ArrayRecord)
    }


def _arrival(message: Message) -> Arrival:
    reply_to = message.metadata.reply_to_message_id
    if message.has_error():
        return Arrival(reply_to, {}, _reason(message.error))
    return Arrival(reply_to, _parts(message.content))


def _reason(error: Any) -> str:
    if error.code == ErrorCode.NODE_UNAVAILABLE:
        return "its connection broke"
    return f"Flower: {error.reason} (code {error.code})"


def _start(
    program: str, *arguments: str, log: Path, level: str = "INFO"
) -> subprocess.Popen[bytes]:
    """A program of this Python environment, which dies with this process."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"FLWR_LOG_LEVEL": level},
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )


def _die_with_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for us; we end our children
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
