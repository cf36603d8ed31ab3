"""Log lines for people and for programs: one per round, written at once."""

from __future__ import annotations

import json

import pytest
from tests.helpers import TWO_TASKS, tiny_federation

from consort import LocalTraining, Run, Schedule
from consort.algorithms.ditto import Ditto
from consort.core.row import Row
from consort.errors import ClientFailed, Failure
from consort.run.json_lines import JsonLines
from consort.run.round_lines import RoundLines, summary

ABOUT = {"reports": "personal", "tasks": {"shape": {"metric": "accuracy"}}}
ROWS = [
    Row(1, "accuracy", 0.5, "a", "shape", "test", "personal", n=9),
    Row(1, "accuracy", 1.0, "b", "shape", "test", "personal", n=1),
    Row(1, "accuracy", 0.1, "a", "shape", "test", "global", n=9),
    Row(1, "loss", 7.0, "a", "shape", "test", "personal", n=9),
    Row(1, "accuracy", 0.25, "a", "shape", "validation", "personal", n=9),
    Row(1, "accuracy", 0.3, "a", "shape", "unseen_x", "personal", n=9),
    Row(1, "det", 0.3, "a", "shape", "test", "personal", "0.1", n=9),
    Row(1, "bytes_up", 2**20, "a", part="encoder"),
    Row(1, "bytes_down", 2**19, "a", part="encoder"),
    Row(1, "seconds", 4.0, "a", part="train"),
    Row(1, "seconds", 5.0),
]


def test_a_round_in_a_few_numbers():
    assert summary(ROWS, ABOUT) == {
        "test accuracy": 0.75, "validation accuracy": 0.25, "MiB": 1.5, "s": 5.0,
    }  # fmt: skip


def test_without_a_description_all_metrics_are_told():
    assert set(summary(ROWS, {})) == {
        "test accuracy", "test loss", "validation accuracy", "MiB", "s",
    }  # fmt: skip


def test_lines_of_a_run(capsys):
    lines = RoundLines("ditto, seed 3")
    lines.described(ABOUT)
    lines.started(1, 2)
    lines.measured(1, ROWS)
    assert capsys.readouterr().err == (
        "ditto, seed 3: round 1 of 2, test accuracy 0.7500, validation accuracy 0.2500, "
        "1.5 MiB, 5 s\n"
    )
    lines.failed(ClientFailed("c7", "lost"))
    lines.finished()
    assert capsys.readouterr().err == (
        "ditto, seed 3: continued without client c7: lost\nditto, seed 3: finished\n"
    )
    lines.started(2, 2)
    assert capsys.readouterr().err == "ditto, seed 3: continued after round 1 of 2\n"


def test_tasks_are_told_apart(tmp_path, capsys):
    federation = tiny_federation(2, tasks=TWO_TASKS)
    observer = RoundLines("x")
    Run(federation, Ditto(LocalTraining()), Schedule(1), folder=tmp_path, observer=observer).go()
    line = capsys.readouterr().err.splitlines()[0]
    assert "test colour accuracy 0." in line
    assert "validation shape accuracy 0." in line


def test_json_lines_of_a_real_run(tmp_path):
    file = tmp_path / "new" / "log.jsonl"
    for rounds in (1, 2):
        Run(tiny_federation(2), Ditto(LocalTraining()), Schedule(rounds), folder=tmp_path / "run",
            observer=JsonLines(file, "ditto", 0)).go()  # fmt: skip
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["event"], line.get("round")) for line in lines] == [
        ("started", 1), ("round", 1), ("finished", None),
        ("started", 1), ("round", 1), ("round", 2), ("finished", None),  # the last is repeated
    ]  # fmt: skip
    assert {(line["algorithm"], line["seed"]) for line in lines} == {("ditto", 0)}
    assert 0 <= lines[1]["test_accuracy"] <= 1
    assert lines[1]["time"] < lines[4]["time"]


def test_failures_are_in_the_file(tmp_path):
    JsonLines(tmp_path / "log", "fedavg", 1).failed(ClientFailed("c1", "lost"))
    line = json.loads((tmp_path / "log").read_text())
    assert (line["event"], line["client"], line["reason"]) == ("failed", "c1", "lost")


def test_a_log_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=r"file/log: the log cannot be written: File exists"):
        JsonLines(tmp_path / "file" / "log", "fedavg", 1).finished()
