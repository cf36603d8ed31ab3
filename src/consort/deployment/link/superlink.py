"""Runs Flower's server, the SuperLink, as a child process."""

from __future__ import annotations

import hashlib
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, user_config_to_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from consort.deployment.link.local import make_local_credentials
from consort.deployment.link.programs import end_program, free_port, start_program
from consort.deployment.link.runtime import RetryPolicy, connect_executor
from consort.errors import Failure

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
"""A Flower app without code: the processes that answer have Consort installed."""

_SHORT = 5.0  # seconds; a SuperLink that ends sooner cannot start at all
_RESTART = 300.0  # seconds that a SuperLink may take to restart
_SUPERLINK = """
import sys
from flwr.supercore import sql_mixin
from flwr.superlink.cli.flower_superlink import flower_superlink

timeout = {"busy_timeout": "120000"}
sql_mixin.SQLITE_PRAGMAS = tuple((dict(sql_mixin.SQLITE_PRAGMAS) | timeout).items())
sys.argv[0] = "flower-superlink"
flower_superlink()
"""
"""The command `flower-superlink` with a longer database timeout: otherwise it loses replies
under load.
"""


class SuperLink:
    """Flower's server as a child process, reachable from this machine only.

    It has a key and a secret of its own, which are made anew every time: nothing of the server's
    credentials gets to it.

    Args:
        folder: Where its files are kept.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = folder / "executor.secret"
        make_local_credentials(folder)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._launched = -_SHORT
        self._lock = threading.Lock()
        self.retry: Any = RetryPolicy(_RESTART, self.keep_alive)
        for old in folder.glob("superlink.db*"):
            old.unlink()  # a run continues from its own checkpoints

    def keep_alive(self) -> None:
        """Starts the process, or restarts it with its database if it has ended.

        Raises:
            Failure: If it ends right after its start.
        """
        with self._lock:
            if self.process is None or self.process.poll() is not None:
                if time.monotonic() - self._launched < _SHORT:
                    raise Failure(f"Flower cannot start: see {self.folder / 'superlink.log'}")
                self._launched = time.monotonic()
                self._launch()

    def _launch(self) -> None:
        files = {"certfile": "link.pem", "keyfile": "link.key", "ca-certfile": "link-ca.pem"}
        arguments = [f"--ssl-{name}={self.folder / file}" for name, file in files.items()]
        self.process = start_program(
            _SUPERLINK,
            *arguments,
            "--isolation=process",
            "--enable-supernode-auth",
            "--disable-runtime-dependency-installation",
            f"--superexec-auth-secret-file={self.secret}",
            f"--database={self.folder / 'superlink.db'}",
            f"--port={self.port}",
            log=self.folder / "superlink.log",
            level="WARNING",  # otherwise it logs every request
        )

    def register(self, name: str, public_key: bytes) -> int:
        """Registers the key of a client's node.

        Returns:
            The id of the node.
        """
        with self._control() as control:
            request = RegisterNodeRequest(public_key=public_key, name=name)
            return int(control.RegisterNode(request).node_id)

    def start_run(self) -> str:
        """Starts a Flower run that this process carries out.

        Returns:
            The token with which this process identifies itself.
        """
        fab, _ = build_fab_from_files({"pyproject.toml": _PROJECT})
        with self._control() as control:
            control.StartRun(
                StartRunRequest(
                    fab=fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {})),
                    override_config=user_config_to_proto({}),
                    federation="",
                )
            )
        secret = self.secret.read_bytes()
        request = AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        with connect_executor(self.address, secret, self.authority, self.retry) as executor:
            while not (token := executor.AcquireTask(request).token):
                time.sleep(0.05)
        return str(token)

    @property
    def authority(self) -> bytes:
        """The certificate that verifies that of the SuperLink."""
        return (self.folder / "link-ca.pem").read_bytes()

    @contextmanager
    def _control(self) -> Any:
        client = ControlHttpClient.from_server_address(
            self.address,
            False,
            self.authority,
            [RuntimeVersionHttpInterceptor(component_name="flwr-cli")],
            retry_invoker=self.retry,
        )
        with client:
            yield client

    def close(self) -> None:
        """Terminates the process."""
        end_program(self.process)
