"""Folders of runs that earlier versions wrote open, report and go on.

`tests/old_runs/0.1.0` was written before modules were moved into packages: `ditto`, stopped after
two of three rounds. Beside it are the rows of the third round of the same run without a stop.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.command import TIMING, consort

from consort.experiment.opening import open_run
from consort.experiment.preparation import resume_run
from consort.run.folder import FORMAT, read_description

OLD = Path(__file__).parents[2] / "old_runs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD / "0.1.0", tmp_path / "run"))


def rows(lines: Iterable[str], round_: int) -> dict[tuple[Any, ...], float]:
    """The values of a round, by all that says of what they are."""
    found = {}
    for row in map(json.loads, lines):
        if row["round"] == round_ and row["metric"] not in TIMING:
            value = row.pop("value")
            found[tuple(sorted(row.items()))] = value
    return found


def test_an_old_run_opens(folder):
    opened = open_run(folder)
    assert opened.recipe.title == "written by Consort 0.1.0"
    assert opened.result.evaluated == [1, 2]
    saved = opened.run.saved()
    assert saved is not None
    assert saved["round"] == 2
    assert opened.run.federation.protections == ()


def test_an_old_run_is_reported_audited_and_exported(folder, tmp_path):
    written = (folder / "run.json").read_bytes()
    for words in (
        ("report", folder, "--out", tmp_path / "report.html"),
        ("audit", folder, "--out", tmp_path / "audit.html"),
        ("export", folder, "--client", "client-1", "--out", tmp_path / "model.pt"),
    ):
        found = consort(*words)
        assert found.code == 0, found.err
        assert words[-1].is_file()
    assert (folder / "run.json").read_bytes() == written


def test_an_old_run_goes_on_as_if_it_had_never_stopped(folder):
    before = (folder / "history.jsonl").read_text()
    resume_run(folder).go()
    after = (folder / "history.jsonl").read_text()
    assert after.startswith(before)
    whole = (OLD / "0.1.0-round-3.jsonl").read_text().splitlines()
    assert rows(after.splitlines(), 3) == pytest.approx(rows(whole, 3), rel=1e-5)


def test_an_old_run_that_went_on_is_of_this_format(folder):
    """The version that wrote it would not find the new states of its clients."""
    resume_run(folder).go()
    assert read_description(folder)["format"] == FORMAT
    after = (folder / "history.jsonl").read_bytes()
    (folder / "round-000003.ckpt").unlink()  # the last one of the old version is the next
    resume_run(folder).go()
    again = (folder / "history.jsonl").read_bytes()
    assert rows(again.decode().splitlines(), 3) == rows(after.decode().splitlines(), 3)
