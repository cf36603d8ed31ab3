"""What `consort clean` deletes, and what it leaves."""

from __future__ import annotations

import sys
from subprocess import PIPE, Popen

import pytest
from tests.helpers import tiny_federation

from consort import Failure, LocalTraining, Run, Schedule, UsageError
from consort.algorithms.ditto import Ditto
from consort.results.result import Result
from consort.run.cleaning import clean, leftover
from consort.run.folder import read_description


def go(folder, rounds):
    run = Run(tiny_federation(3), Ditto(LocalTraining(lr=0.1)), Schedule(rounds), folder=folder)
    run.go()
    return run


def rows(folder):
    return (folder / "history.jsonl").read_text()


def test_cleaning_leaves_the_results(tmp_path):
    run = go(tmp_path / "a", 2)
    before = rows(tmp_path / "a")
    assert leftover(tmp_path / "a").size > 0
    clean(tmp_path / "a")
    assert leftover(tmp_path / "a").size == 0
    assert not list((tmp_path / "a").glob("*.ckpt"))
    again = go(tmp_path / "a", 2)  # finished: nothing is trained
    assert rows(tmp_path / "a") == before
    assert again.server is None
    assert run.server is not None
    with pytest.raises(UsageError, match="was cleaned and cannot be extended"):
        go(tmp_path / "a", 3)
    clean(tmp_path / "a")  # once more, as after it was killed in the middle


def test_damaged_results_of_a_cleaned_run_are_still_noticed(tmp_path):
    go(tmp_path, 2)
    clean(tmp_path)
    assert Result.load(tmp_path).last_round == 2
    path = tmp_path / "history.jsonl"
    path.write_text(path.read_text().replace('"value":0.', '"value":1.', 1))
    with pytest.raises(Failure, match="results of finished rounds were changed"):
        Result.load(tmp_path)


def test_a_run_whose_last_checkpoint_is_damaged_is_not_cleaned(tmp_path):
    go(tmp_path, 2)
    (tmp_path / "round-000002.ckpt").write_bytes(b"x")
    with pytest.raises(Failure, match="is damaged"):
        clean(tmp_path)
    assert len(list(tmp_path.glob("*.ckpt"))) == 2
    assert "cleaned" not in read_description(tmp_path)


def test_a_run_that_another_process_uses_is_not_cleaned(tmp_path):
    go(tmp_path, 1)
    code = (
        "import sys; from pathlib import Path; from consort.core.files import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    with Popen([sys.executable, "-c", code, tmp_path], stdin=PIPE, stdout=PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UsageError, match="in use by another process"):
            clean(tmp_path)
        other.stdin.close()
    clean(tmp_path)
