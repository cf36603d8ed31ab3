"""Results as data frames of pandas and of polars."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.unit.report.sample import write_run

from consort.errors import UsageError
from consort.results.frames import frame_of, history_frame
from consort.results.result import Result
from consort.run.history import History


def test_the_whole_history_is_in_it(tmp_path):
    pytest.importorskip("pandas")
    runs = [Result.load(write_run(tmp_path / str(seed), seed=seed, rounds=2)) for seed in (0, 3)]
    frame = history_frame(runs)
    rows = [row for run in runs for row in History(run.folder / "history.jsonl")]
    assert len(frame) == len(rows)
    assert list(frame["value"]) == [row.value for row in rows]
    assert set(frame["seed"]) == {0, 3}
    accuracy = frame[(frame.metric == "accuracy") & (frame.split == "test") & (frame["round"] == 2)]
    of_first = accuracy[accuracy.seed == 0].value.mean()
    assert of_first == pytest.approx(runs[0].value("accuracy"))
    assert len(runs[0].frame()) == len(rows) // 2


def used(code: str) -> str:
    program = (
        f"{code}; from consort.results.frames import frame_of; print(type(frame_of({{'a': [1]}})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_library_that_was_imported_is_taken():
    pytest.importorskip("pandas")
    pytest.importorskip("polars")
    assert "polars" in used("import polars")
    assert "pandas" in used("import polars, pandas")
    assert "pandas" in used("import sys")
    assert "polars" in used("import sys; sys.modules['pandas'] = None")


def test_without_either_the_way_out_is_told(monkeypatch):
    for name in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match="pip install pandas"):
        frame_of({"a": [1]})
