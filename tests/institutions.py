"""Three institutions on this machine: credentials, data, and the command as processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from consort.deployment.credentials import ClientCredentials, ServerCredentials

ROOT = Path(__file__).parents[1]
NAMES = ("a-0", "b-0", "c-0")
SIZES = {"a-0": 90, "b-0": 100, "c-0": 110}
STUDY = """
title = "three institutions"
clients = 3

[model]
name = "mlp"
hidden = [8]

[run]
rounds = 2
evaluate_every = 0

[local]
lr = 0.1

"""


def holdings(name: str) -> dict[str, Any]:
    """The data that a client holds."""
    return {
        "name": "synthetic_vectors",
        "classes": 4,
        "features": 6,
        "examples": SIZES.get(name, 80),
    }


def groups() -> list[dict[str, Any]]:
    """The same clients as groups of a recipe, to be run in one process."""
    return [{"name": name[:-2], "count": 1, "data": holdings(name)} for name in NAMES]


class Institutions:
    """A folder with the credentials of a server and of clients, and what clients bring."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str] = NAMES,
        hosts: Sequence[str] = ("localhost",),
        days: int = 2,
    ) -> None:
        self.folder = folder
        self.server = ServerCredentials.create(folder / "server", list(hosts), days)
        self.environment = environment()
        for name in names:
            self.admit(name)
        self.processes: list[subprocess.Popen[bytes]] = []

    def admit(self, name: str, days: int = 2) -> ClientCredentials:
        """Makes a client's key and certificate, as two institutions would."""
        made = ClientCredentials.create(self.folder / name, name)
        made.certificate.write_bytes(self.server.admit(made.request, days).read_bytes())
        data = self.folder / f"{name}-data"
        data.mkdir()
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in holdings(name).items())
        (data / "client.toml").write_text("[data]\n" + text)
        (made.folder / "policy.toml").write_text('approve = "listed"\n')
        return made

    def start(
        self,
        *arguments: object,
        log: str,
        prefix: Sequence[str] = (),
        first: str = "",
        variables: Mapping[str, str] = {},
    ) -> subprocess.Popen[bytes]:
        """The command in the background."""
        command = [sys.executable, "-c", f"{first}from consort.cli import main; main()"]
        with (self.folder / log).open("ab") as output:
            process = subprocess.Popen(
                [*prefix, *command, *map(str, arguments)],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment | dict(variables),
                cwd=self.folder,
            )
        self.processes.append(process)
        return process

    def start_client(
        self,
        name: str,
        port: int,
        *more: object,
        host: str = "localhost",
        folder: Path | None = None,
        log: str = "",
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """One client, on its own machine so to speak."""
        home = folder or self.folder / name
        return self.start(
            *("client", "--server", f"{host}:{port}", "--credentials", home),
            *("--data", home.with_name(f"{name}-data"), "--name", name, *more),
            log=log or f"{name}.log",
            **options,
        )

    def said(self, log: str) -> str:
        """What a process has printed so far."""
        path = self.folder / log
        return path.read_text(errors="replace") if path.exists() else ""

    def close(self) -> None:
        """Ends every process that was started here."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def environment() -> dict[str, str]:
    """Finds this source, and not a user's data."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
    kept = {key: value for key, value in os.environ.items() if key != "CONSORT_DATA"}
    return kept | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def until(condition: Callable[[], Any], seconds: float, what: str = "it") -> None:
    """Waits for something to become true."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:g} s for {what} in vain")
        time.sleep(0.05)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Wire:
    """Stands between clients and server, passes every byte on, and remembers it."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.heard = bytearray()
        self.cut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self.cut:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while not self.cut and (data := source.recv(1 << 16)):
                self.heard += data
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """No more connections."""
        self._listener.close()


@contextmanager
def wire(target: int) -> Iterator[Wire]:
    """A wire that is gone afterwards."""
    made = Wire(target)
    try:
        yield made
    finally:
        made.close()
