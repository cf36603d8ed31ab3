"""The one reader of `run.json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.helpers import tiny_federation
from tests.unit.report.sample import write_run

import consort
from consort.algorithms.fedavg import FedAvg
from consort.core.sealed import write_json
from consort.errors import Failure, UsageError
from consort.results.result import Result
from consort.run.folder import FORMAT, read_description, read_history, runs_below
from consort.run.run import Run
from consort.run.schedule import Schedule


def change(folder: Path, **keys: object) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))
    return folder


def test_a_folder_of_version_0_1_0_names_no_format_and_is_read(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    assert "format" not in read_description(folder)
    assert Result.load(folder).algorithm == "fedavg"
    assert read_description(change(folder, format=1))["seed"] == 0


def test_a_folder_of_this_version_has_a_digest(tmp_path: Path):
    folder = change(write_run(tmp_path / "run"), format=FORMAT)
    with pytest.raises(Failure, match=r"run\.json says nothing about its digest"):
        read_description(folder)
    path = folder / "run.json"
    write_json(path, json.loads(path.read_text()))
    assert read_description(folder)["seed"] == 0
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(Failure, match=r"run\.json is damaged or was changed: start the run again"):
        read_description(folder)


def test_a_folder_of_another_format_says_so_in_one_sentence(tmp_path: Path):
    environment = {"consort": "7.0.0"}
    folder = change(write_run(tmp_path / "run"), format=FORMAT + 1, environment=environment)
    for read in (read_description, Result.load):
        with pytest.raises(UsageError) as caught:
            read(folder)
        assert str(caught.value) == (
            f"{folder / 'run.json'} was written by Consort 7.0.0 in format {FORMAT + 1}, and "
            f"Consort {consort.__version__} reads format {FORMAT}: open it with the version that "
            "wrote it"
        )


def test_another_format_is_told_before_what_is_missing(tmp_path: Path):
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(UsageError, match="written by Consort of another version in format 99"):
        read_description(tmp_path)


@pytest.mark.parametrize("content", ["", "3", "[]", "null", '{"algorithm": ', '{"seed": 0}'])
def test_a_damaged_description_is_an_error_that_names_it(tmp_path: Path, content: str):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(Failure, match=r"run\.json .*: start the run again"):
        read_description(tmp_path)


def finished(folder: Path, rounds: int = 3) -> Path:
    Run(tiny_federation(2), FedAvg(), Schedule(rounds), folder=folder).go()
    return folder


def test_results_are_checked_when_they_are_read(tmp_path: Path):
    folder = finished(tmp_path / "run")
    path = folder / "history.jsonl"
    whole = path.read_bytes()
    expected = list(read_history(folder))
    for position in (len(whole) // 7 * step for step in range(1, 7)):
        damaged = bytearray(whole)
        damaged[position] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(Failure, match=r"history\.jsonl"):
            list(read_history(folder))
    path.write_bytes(whole + b'{"round": 4, "met')
    assert list(read_history(folder)) == expected
    path.write_bytes(whole[:-1])
    with pytest.raises(Failure, match=r"history\.jsonl was cut short"):
        read_history(folder)


@pytest.mark.parametrize("position", [3, 30, 200, -1])
def test_a_damaged_checkpoint_is_not_held_against_the_results(position, tmp_path: Path, caplog):
    """Its header may be what is damaged; then the checkpoint before it has the digest."""
    folder = finished(tmp_path / "run")
    path = folder / "round-000003.ckpt"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    rounds = {row.round for row in read_history(folder)}
    assert rounds in ({1, 2}, {1, 2, 3})
    if rounds == {1, 2}:
        assert f"{path} is damaged" in caplog.text


def test_without_checkpoints_all_rows_are_read(tmp_path: Path):
    folder = finished(tmp_path / "run")
    expected = list(read_history(folder))
    for path in folder.glob("*.ckpt"):
        path.unlink()
    assert list(read_history(folder)) == expected


def test_reading_changes_nothing(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}
    read_description(folder)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.iterdir()} == before


def test_runs_are_found_wherever_they_are_below(tmp_path: Path):
    folders = [write_run(tmp_path / name) for name in ("a/seed-0", "a/seed-1", "b")]
    assert runs_below(tmp_path) == folders
    assert runs_below(folders[0]) == folders[:1]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"holds no run: there is no run\.json in it or below it"):
        runs_below(tmp_path / "empty")
    with pytest.raises(UsageError, match="holds no run: there is no such folder"):
        runs_below(tmp_path / "nowhere")
