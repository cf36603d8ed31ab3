"""The command in this process, a recipe that takes no time, and what a run leaves behind."""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from consort.algorithms.registry import find_algorithm
from consort.cli import main
from consort.core import files
from consort.core.wire import encode
from consort.engines.states import StateStore

RECIPE = """
title = "tiny"
clients = 3

[data]
name = "synthetic_vectors"
classes = 4
examples = 90
features = 6

[model]
name = "mlp"
hidden = [8]

[run]
rounds = 2

[local]
lr = 0.1

[algorithms.fedavg]

[algorithms.ditto]
"""
TIMING = ("seconds", "evaluation_seconds", "peak_memory_mib")


@dataclass(frozen=True)
class Outcome:
    """What a command leaves on the screen, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that says what is wrong, where there must be nothing else to read."""
        assert self.out == ""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("error: "), self.err
        return self.err.strip()


def consort(*arguments: object) -> Outcome:
    """The command as from a shell that knows of no data folder."""
    out, err = StringIO(), StringIO()
    shell = {key: value for key, value in os.environ.items() if key != "CONSORT_DATA"}
    code: Any = 0
    with (
        patch.object(sys, "argv", ["consort", *map(str, arguments)]),
        patch.dict(os.environ, shell | {"COLUMNS": "200"}, clear=True),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return Outcome(code, out.getvalue(), err.getvalue())


def write_recipe(folder: Path, *changes: tuple[str, str], more: str = "") -> Path:
    """The tiny recipe with some words replaced and some lines added at its end."""
    text = RECIPE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "tiny.toml"
    path.write_text(text + more)
    return path


def measured(folder: Path) -> list[str]:
    """The lines of a run's history, without those that depend on the clock or the machine."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    return [line for line in lines if json.loads(line)["metric"] not in TIMING]


def server_bytes(folder: Path) -> bytes:
    """The server's state in the last checkpoint, bit for bit."""
    name = json.loads((folder / "run.json").read_text())["algorithm"]
    state = find_algorithm(name).state_type()
    last = max(folder.glob("round-*.ckpt"))
    return encode(files.load(last, {state.__name__: state})["server"])


def client_states(folder: Path) -> dict[str, bytes]:
    """The newest state of every client, bit for bit."""
    store = StateStore(folder / "clients")
    clients = json.loads((folder / "run.json").read_text())["clients"]
    return {client: store.read(client, (10**6, 0)) for client in sorted(clients)}
