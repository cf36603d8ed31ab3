"""The status of a server, as the command shows it and as a container's health check reads it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.unit.cli.command import consort

from consort.deployment.status_file import StatusFile


def status(folder: Path, phase: str, silent: float = 0.0) -> None:
    file = StatusFile(folder / "status.json")
    file.begin(["a", "b"], algorithm="fedavg", rounds=3)
    file.run(phase=phase)
    table = json.loads(file.path.read_text())
    file.path.write_text(json.dumps(table | {"written": time.time() - silent}))


@pytest.mark.parametrize(
    ("phase", "silent", "code"),
    [
        ("waiting", 0, 0),
        ("running", 0, 0),
        ("running", 20, 0),
        ("running", 60, 1),
        ("finished", 10_000, 0),
        ("stopped", 0, 1),
    ],
)
def test_the_exit_status_says_whether_the_server_is_well(phase, silent, code, tmp_path: Path):
    status(tmp_path, phase, silent)
    for more in ([], ["--json"]):
        assert consort("status", tmp_path, *more).code == code


def test_a_folder_without_a_run_is_a_wrong_request(tmp_path: Path):
    assert consort("status", tmp_path).code == 2
