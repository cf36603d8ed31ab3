"""`consort table` and the pictures of `consort report`."""

from __future__ import annotations

import pytest
from tests.unit.cli.command import consort
from tests.unit.report.sample import TASKS, write_run

SHAPE = {"shape": TASKS["shape"]}


@pytest.fixture
def runs(tmp_path):
    for name, skill in (("fedavg", 0.6), ("ditto", 0.9), ("local_only", 0.5)):
        for seed in range(3):
            folder = tmp_path / "runs" / name / f"seed-{seed}"
            write_run(folder, algorithm=name, seed=seed, rounds=2, tasks=SHAPE, skill=skill)
    return tmp_path / "runs"


def test_a_table_for_a_paper(runs):
    shown = consort("table", runs, "--format", "latex", "--test", "t")
    assert shown.code == 0
    assert r"\toprule" in shown.out
    assert shown.out.count("^{*}") == 2
    assert shown.out.count(r"\mathbf") == 1


def test_into_a_file(runs, tmp_path):
    shown = consort("table", runs, "--format", "csv", "--out", tmp_path / "new" / "table.csv")
    assert shown.out == f"{tmp_path / 'new' / 'table.csv'}\n"
    assert (tmp_path / "new" / "table.csv").read_text().count("\n") == 4


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--metric", "acuracy"], "no value 'acuracy': did you mean 'accuracy'?"),
        (["--diagram", "cd.svg"], "--diagram shows average ranks: add --test friedman"),
        (["--test", "t", "--against", "fedavgg"], "did you mean 'fedavg'?"),
        (["--test", "friedman", "--diagram", "cd.gif"], "cd.gif: the file must end with .svg"),
    ],
)
def test_what_is_wrong_is_told(runs, arguments, error):
    shown = consort("table", runs, *arguments)
    assert shown.code == 2
    assert error in shown.err


def test_a_diagram_is_drawn(runs, tmp_path):
    pytest.importorskip("kaleido")
    file = tmp_path / "cd.svg"
    shown = consort("table", runs, "--test", "friedman", "--over", "clients", "--diagram", file)
    assert (shown.code, shown.err) == (0, f"{file}\n")
    assert "CD = 1.35" in file.read_text()  # three algorithms, six clients: 2.343 · √(12/36)
    assert "critical difference 1.353 over 6" in shown.out


def test_the_plots_of_a_report_as_files(runs, tmp_path):
    pytest.importorskip("kaleido")
    folder = tmp_path / "plots"
    shown = consort("report", runs / "ditto" / "seed-0", "--pictures", folder)
    found = sorted(path.name for path in folder.iterdir())
    assert shown.out.endswith(f"{folder}: {len(found)} pictures\n")
    assert "learning-curves-shape-test-accuracy.svg" in found
