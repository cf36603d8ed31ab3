"""Log files, trackers and SIGTERM, from the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.cli.command import RECIPE, TIMING, consort

from consort.run.history import History


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    return path


def test_a_batch_job_has_one_line_per_round(recipe, tmp_path):
    shown = consort("compare", recipe, "--out", tmp_path / "out")
    lines = shown.err.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["fedavg"] * 3 + ["ditto"] * 3
    assert lines[0].startswith("fedavg, seed 0: round 1 of 2, test accuracy 0.")
    assert consort("compare", recipe, "--out", tmp_path / "out", "--quiet").err == ""


def test_a_log_file_of_json_lines(recipe, tmp_path):
    log = tmp_path / "log.jsonl"
    consort("compare", recipe, "--out", tmp_path / "out", "--log-file", log, "--quiet")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["started", "round", "round", "finished"] * 2


def test_trackers_are_checked_before_anything_is_trained(recipe, tmp_path):
    shown = consort("run", recipe, "--out", tmp_path / "out", "--log", "tensorboard,mlfow")
    assert shown.code == 2
    assert "did you mean 'mlflow'?" in shown.error
    assert not (tmp_path / "out").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_tracked_run(recipe, tmp_path):
    pytest.importorskip("tensorboard")
    consort("run", recipe, "--out", tmp_path / "out", "--log", "tensorboard", "--quiet")
    assert list((tmp_path / "out" / "fedavg" / "seed-0" / "tensorboard").iterdir())


@pytest.mark.parametrize("workers", [1, 2])
def test_sigterm_to_all_processes_ends_a_run_that_can_be_continued(recipe, tmp_path, workers):
    many = ["--set", "run.rounds=400", "--algorithm", "fedavg"]
    command = [sys.executable, "-c", "from consort.cli import main; main()", "run", str(recipe),
               "--out", str(tmp_path / "out"), "--workers", str(workers), *many]  # fmt: skip
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, process_group=0
    )
    assert process.stderr
    for line in process.stderr:
        if "round 3 of 400" in line:
            break
    os.killpg(process.pid, signal.SIGTERM)  # as a batch system does
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 75
    assert rest.splitlines()[-1] == (
        "error: stopped by SIGTERM; nothing is lost: repeat the command to continue"
    )
    assert "Traceback" not in rest
    folder = tmp_path / "out" / "fedavg" / "seed-0"
    done = int(max(path.stem for path in folder.glob("round-*.ckpt"))[-6:])
    assert 3 <= done < 400
    few = ["--set", f"run.rounds={done + 2}", "--quiet"]
    consort("run", recipe, "--out", tmp_path / "straight", *few)
    straight = tmp_path / "straight" / "fedavg" / "seed-0" / "history.jsonl"
    before = [row for row in History(folder / "history.jsonl") if row.round <= done]
    expected = [row for row in History(straight) if row.round <= done]
    assert [r for r in before if r.metric not in TIMING] == [
        r for r in expected if r.metric not in TIMING
    ]
    time.sleep(0.1)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # no worker is left
