"""Structured logs: one JSON object a line, with announced fields and nothing else."""

from __future__ import annotations

import json
import logging
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.letters import PostOffice, ask, engine_for, participants, run_with

from consort.deployment.logs import FIELDS, LogObserver, log, logging_to
from consort.deployment.participant import Participant
from consort.deployment.status_file import StatusFile
from consort.engines.middleware import Absent
from consort.errors import UsageError
from consort.experiment.loading import recipe_of


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


# A line


def test_an_event_is_one_line_with_its_time_and_its_fields(tmp_path: Path):
    path = tmp_path / "log"
    before = datetime.now(UTC)
    with logging_to(path):
        log("answered", client="bank-1", round=3, method="train", seconds=0.25, bytes=1200)
    (line,) = lines(path)
    moment = datetime.fromisoformat(line.pop("time"))
    assert moment.utcoffset().total_seconds() == 0
    assert abs((moment - before).total_seconds()) < 5
    assert line == {
        "level": "info",
        "event": "answered",
        "client": "bank-1",
        "round": 3,
        "method": "train",
        "seconds": 0.25,
        "bytes": 1200,
    }


def test_the_level_is_that_of_the_event(tmp_path: Path):
    with logging_to(tmp_path / "log"):
        log("client_failed", logging.WARNING, client="b", kind="absent")
    assert lines(tmp_path / "log")[0]["level"] == "warning"


@pytest.mark.parametrize("text", ['a\nb", "event": "x', "\x1b[31m", "é\u2028\ud800", "x" * 10_000])
def test_text_of_others_stays_one_short_line(text, tmp_path: Path):
    with logging_to(tmp_path / "log"):
        log("joined", algorithm=text)
    raw = (tmp_path / "log").read_bytes()
    assert raw.count(b"\n") == 1
    assert len(raw) < 2_000
    assert all(32 <= byte < 127 for byte in raw[:-1])
    assert lines(tmp_path / "log")[0]["algorithm"] == text[:200]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0], {"w": 1}, b"key", None])
def test_only_plain_numbers_and_text_are_written(value, tmp_path: Path):
    with logging_to(tmp_path / "log"), pytest.raises(TypeError, match="seconds"):
        log("answered", seconds=value)


def test_a_field_that_is_not_announced_is_refused(tmp_path: Path):
    with logging_to(tmp_path / "log"), pytest.raises(TypeError, match="payload"):
        log("answered", payload="w")  # type: ignore[call-arg]


def test_the_announced_fields_have_no_place_for_payloads_or_paths():
    assert set(FIELDS) == {
        *("client", "clients", "round", "rounds", "method", "algorithm", "study", "state"),
        *("phase", "kind", "reason", "seconds", "bytes", "bytes_up", "bytes_down"),
    }


def test_without_a_log_nothing_is_written(capfd):
    log("answered", client="a")
    with logging_to(None):
        log("answered", client="a")
    assert capfd.readouterr() == ("", "")


def test_the_log_goes_to_standard_error_if_asked(capfd):
    with logging_to(None, to_stderr=True):
        log("phase", phase="waiting")
    out, err = capfd.readouterr()
    assert out == ""
    assert json.loads(err)["phase"] == "waiting"


def test_both_at_once(tmp_path: Path, capfd):
    with logging_to(tmp_path / "log", to_stderr=True):
        log("phase", phase="waiting")
    assert capfd.readouterr().err == (tmp_path / "log").read_text()


def test_after_the_context_nothing_is_written(tmp_path: Path):
    with logging_to(tmp_path / "log"):
        log("phase", phase="waiting")
    log("phase", phase="running")
    assert len(lines(tmp_path / "log")) == 1


# The file


def test_the_file_is_its_owners_only_and_is_continued(tmp_path: Path):
    path = tmp_path / "log"
    for phase in ("waiting", "running"):
        with logging_to(path):
            log("phase", phase=phase)
    assert [line["phase"] for line in lines(path)] == ["waiting", "running"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_was_moved_away_is_opened_again(tmp_path: Path):
    """So logrotate needs to tell nobody."""
    path = tmp_path / "log"
    with logging_to(path):
        log("phase", phase="waiting")
        path.rename(tmp_path / "log.1")
        log("phase", phase="running")
    assert [line["phase"] for line in lines(tmp_path / "log.1")] == ["waiting"]
    assert [line["phase"] for line in lines(path)] == ["running"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path):
    with (
        pytest.raises(UsageError, match=r"--log-file .*nowhere"),
        logging_to(tmp_path / "nowhere/x"),
    ):
        pass


def test_a_disk_that_fills_up_does_not_stop_a_run(capfd):
    with logging_to(Path("/dev/full")):
        log("phase", phase="running")
        log("phase", phase="finished")
    assert "Traceback" not in capfd.readouterr().err


# What server and client say


STUDY = {
    "clients": 3,
    "model": {"name": "mlp", "hidden": [8]},
    "run": {"rounds": 2, "on_error": "skip"},
    "local": {"lr": 0.1, "batch": 16},
    "algorithms": {"fedavg": {}},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The log of a run by letters; both sides write into it, since they share this process."""
    folder = tmp_path_factory.mktemp("logged")
    recipe = recipe_of(STUDY, "logged")
    post = PostOffice(participants(folder / "homes"))
    with logging_to(folder / "log"):
        engine = engine_for(recipe, "fedavg", post, folder)
        run_with(recipe, "fedavg", engine, folder, LogObserver()).go()
    return lines(folder / "log")


def events(written: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in written if line["event"] == name]


def test_the_server_logs_its_rounds(written):
    (started,) = events(written, "run_started")
    assert (started["round"], started["rounds"]) == (1, 2)
    assert [line["round"] for line in events(written, "round_started")] == [1, 2]
    for line in events(written, "round_done"):
        assert line["bytes_up"] > 1000
        assert line["bytes_down"] > 1000
        assert line["seconds"] > 0
    assert len(events(written, "run_finished")) == 1


def test_both_sides_log_every_answer(written):
    replies = events(written, "reply")
    answers = events(written, "answered")
    assert {line["client"] for line in replies} == {"a-0", "b-0", "c-0"}
    assert [line["method"] for line in answers] == [line["method"] for line in replies]
    assert all(line["bytes"] > 0 and line["seconds"] >= 0 for line in answers)


def test_a_client_logs_what_it_joins(written):
    assert {line["algorithm"] for line in events(written, "joined")} == {"fedavg"}


def test_a_failure_is_logged_by_its_kind_and_without_its_text(tmp_path: Path):
    with logging_to(tmp_path / "log"):
        LogObserver().failed(Absent("b-0", "/home/b/patients.csv is missing"))
    (line,) = lines(tmp_path / "log")
    assert (line["level"], line["client"], line["kind"]) == ("warning", "b-0", "absent")
    assert "patients" not in (tmp_path / "log").read_text()


def test_the_state_of_a_client_is_logged_without_its_text(tmp_path: Path):
    status = StatusFile(tmp_path / "status.json")
    with logging_to(tmp_path / "log"):
        status.begin(["b-0"], algorithm="fedavg")
        status.run(phase="waiting")
        status.client("b-0", "refused: /home/b/patients.csv is missing")
        status.client("b-0", "refused: /home/b/patients.csv is missing")
    assert [line["phase"] for line in events(lines(tmp_path / "log"), "phase")] == ["waiting"]
    (line,) = events(lines(tmp_path / "log"), "client_state")
    assert (line["client"], line["state"]) == ("b-0", "refused")
    assert "patients" not in (tmp_path / "log").read_text()


def asked(tmp_path: Path, brings: dict[str, Any]) -> list[dict[str, Any]]:
    """The log of a client that cannot take part with what it brings."""
    client = Participant("a-0", brings, None, tmp_path / "home", say=lambda _: None)
    engine = engine_for(recipe_of(STUDY, "logged"), "fedavg", PostOffice({"a-0": client}), tmp_path)
    with logging_to(tmp_path / "log"), pytest.raises(AssertionError):
        ask(engine, "a-0", kind="describe")
    return lines(tmp_path / "log")


def test_a_client_tells_its_own_operator_why_it_refuses(tmp_path: Path):
    (line,) = events(asked(tmp_path, {"data": {"name": "nothing"}}), "refused")
    assert (line["level"], line["kind"]) == ("warning", "UsageError")
    assert "'nothing'" in line["reason"]


def test_an_unexpected_error_is_logged_without_its_text(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("patients.py").write_text(
        "def load(seed):\n    raise KeyError('John Smith, born 1 April 1970')\n"
    )
    (line,) = events(asked(tmp_path, {"data": {"name": "patients.py:load"}}), "failed")
    assert (line["level"], line["kind"]) == ("error", "KeyError")
    assert "Smith" not in (tmp_path / "log").read_text()
