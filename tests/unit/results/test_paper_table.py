"""Tables for papers: the numbers, the marks, and every format, from hand-made runs."""

from __future__ import annotations

import csv
import math
from io import StringIO
from pathlib import Path

import pytest
from scipy import stats
from tests.unit.results.test_result import run

from consort.core.row import Row
from consort.errors import UsageError
from consort.results.layout import digits_of, laid_out
from consort.results.paper_table import ALL, experiments_of, paper_table
from consort.results.result import Result

SEEDS = range(4)
ACCURACY = {"fedavg": [0.5, 0.52, 0.51, 0.53], "ditto_x": [0.7, 0.71, 0.69, 0.74],
            "local": [0.6, 0.75, 0.5, 0.69]}  # fmt: skip


def scored(folder: Path, algorithm: str, seed: int, clients: dict[str, float], **about) -> Result:
    rows = [Row(1, "accuracy", v, c, "shape", "test", "global", n=10) for c, v in clients.items()]
    rows += [Row(1, "loss", 1 - v, c, "shape", "test", "global", n=10) for c, v in clients.items()]
    rows.append(Row(1, "bytes_up", 1_000_000 * len(algorithm), "c0", part="encoder"))
    path = folder / algorithm / f"seed-{seed}"
    return run(path, rows, algorithm=algorithm, seed=seed, **about)


@pytest.fixture
def runs(tmp_path):
    return [
        scored(tmp_path, name, seed, {"c0": value - 0.1, "c1": value + 0.1})
        for name, values in ACCURACY.items()
        for seed, value in zip(SEEDS, values, strict=True)
    ]


def one_column(runs, **question):
    return paper_table({"": runs}, **question).columns[0]


def test_mean_and_deviation_over_seeds_and_the_best(runs):
    column = one_column(runs)
    for name, values in ACCURACY.items():
        cell = column.cells[name]
        assert cell.values.mean == pytest.approx(sum(values) / 4)
        assert cell.values.std == pytest.approx(stats.tstd(values))
        assert (cell.best, cell.probability) == (name == "ditto_x", None)
    assert column.higher_is_better


@pytest.mark.parametrize(
    ("test", "expected"), [("t", stats.ttest_rel), ("wilcoxon", stats.wilcoxon)]
)
def test_everyone_is_compared_with_the_best_and_corrected(runs, test, expected):
    column = one_column(runs, test=test)
    raw = {n: expected(ACCURACY["ditto_x"], ACCURACY[n]).pvalue for n in ("fedavg", "local")}
    smaller, larger = sorted(raw, key=raw.get)
    assert column.against == "ditto_x"
    assert column.cells[smaller].probability == pytest.approx(2 * raw[smaller])
    assert column.cells[larger].probability == pytest.approx(max(2 * raw[smaller], raw[larger]))
    assert column.cells["ditto_x"].probability is None
    assert [n for n, c in column.cells.items() if c.significant] == (
        ["fedavg"] if test == "t" else []
    )


def test_one_algorithm_may_be_compared_with_all_others(runs):
    column = one_column(runs, test="t", against="fedavg")
    assert column.against == "fedavg"
    assert {name for name, cell in column.cells.items() if cell.significant} == {"ditto_x"}
    with pytest.raises(UsageError, match="did you mean 'fedavg'"):
        paper_table({"": runs}, test="t", against="fedavgg")


def test_too_few_pairs_are_told(runs):
    (meaning, warning) = paper_table({"": runs}, test="wilcoxon").notes
    assert "Wilcoxon's signed-rank test, corrected by Holm's method, paired over seeds" in meaning
    assert warning.startswith(
        "With 4 pairs and 2 comparisons, no p of Wilcoxon's test is below 0.25"
    )
    assert len(paper_table({"": runs}, test="t").notes) == 1


def test_clients_are_paired_by_their_means_over_seeds(tmp_path):
    means = {"a": [0.1, 0.5, 0.9, 0.4, 0.3], "b": [0.2, 0.7, 0.8, 0.8, 0.8]}
    runs = [
        scored(tmp_path, name, seed, {f"c{i}": v + shift for i, v in enumerate(values)})
        for name, values in means.items()
        for seed, shift in ((0, -0.01), (1, 0.01))
    ]
    column = one_column(runs, test="t", over="clients")
    expected = stats.ttest_rel(means["a"], means["b"]).pvalue
    assert column.cells["a"].probability == pytest.approx(expected)
    assert column.cells["a"].values.n == 2
    with pytest.raises(UsageError, match="bytes is no mean over clients"):
        paper_table({"": runs}, ["bytes"], "t", "clients")


def test_folders_with_the_same_runs_are_experiments(tmp_path, runs):
    others = [scored(tmp_path / "other", r.algorithm, r.seed, {"c0": 0.5}) for r in runs]
    found = experiments_of({tmp_path / "one": runs, tmp_path / "other": others})
    assert {name: len(held) for name, held in found.items()} == {"one": 12, "other": 12}
    assert list(experiments_of({tmp_path: runs[:6], tmp_path / "x": runs[6:]})) == [""]
    table = paper_table(found, test="friedman", over="folders")
    assert [column.experiment for column in table.columns] == ["one", "other", ALL]
    assert [bool(column.ranking) for column in table.columns] == [False, False, True]
    assert table.columns[2].cells["local"].values.mean == pytest.approx((0.635 + 0.5) / 2)
    with pytest.raises(UsageError, match=r"several runs of fedavg with seed 0"):
        experiments_of({tmp_path: [*runs, *others]})
    with pytest.raises(UsageError, match="several experiments"):
        paper_table({"": runs}, test="friedman", over="folders")


def test_friedman_marks_by_the_critical_difference(tmp_path):
    ranks = {"a": 0.1, "b": 0.2, "c": 0.3}
    runs = [
        scored(tmp_path, name, seed, {"c0": value})
        for name, value in ranks.items()
        for seed in range(10)
    ]
    column = one_column(runs, test="friedman")
    assert column.ranking.ranks == {"c": 1, "b": 2, "a": 3}
    assert {name: cell.significant for name, cell in column.cells.items()} == {
        "a": True, "b": False, "c": False,  # 2 - 1 is less than 2.343 · √(12/60) = 1.048
    }  # fmt: skip


def test_less_is_better_of_losses_and_bytes(runs):
    loss, sent, best = paper_table({"": runs}, ["loss", "bytes", "best_accuracy"]).columns
    assert [column.higher_is_better for column in (loss, sent, best)] == [False, False, True]
    assert loss.cells["ditto_x"].best
    assert sent.cells["local"].best


def test_a_run_that_diverged_is_shown_and_not_tested(tmp_path, runs):
    lost = [scored(tmp_path, "lost", seed, {"c0": math.nan}) for seed in SEEDS]
    table = paper_table({"": [*runs, *lost]}, test="t")
    cell = table.columns[0].cells["lost"]
    assert (cell.best, cell.significant, cell.probability) == (False, False, None)
    assert laid_out(table, "text").splitlines()[4].split() == ["lost", "–"]  # noqa: RUF001


def test_algorithms_without_a_common_seed_are_not_paired(tmp_path):
    runs = [scored(tmp_path, "a", 0, {"c0": 1}), scored(tmp_path, "b", 1, {"c0": 0.5})]
    with pytest.raises(UsageError, match="no seeds in common"):
        paper_table({"": runs}, test="t")


def test_as_text(runs):
    assert laid_out(paper_table({"": runs}, test="t"), "text") == (
        "algorithm      accuracy ↑\n"
        "fedavg     0.515 ± 0.013*\n"
        "ditto_x     0.710 ± 0.022\n"
        "local       0.635 ± 0.109\n"
        "*: differs from the best (p < 0.05; Student's paired t-test, corrected by Holm's method, "
        "paired over seeds).\n"
    )


def test_as_latex(runs):
    assert laid_out(paper_table({"": runs}, ["accuracy", "bytes"], "t"), "latex") == (
        "% needs \\usepackage{booktabs}\n"
        "% *: differs from the best (p < 0.05; Student's paired t-test, corrected by Holm's method,"
        " paired over seeds).\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "Algorithm & accuracy $\\uparrow$ & bytes $\\downarrow$ \\\\\n"
        "\\midrule\n"
        "fedavg & $0.515 \\pm 0.013^{*}$ & $6{,}000{,}000 \\pm 0^{*}$ \\\\\n"
        "ditto\\_x & $\\mathbf{0.710} \\pm 0.022$ & $7{,}000{,}000 \\pm 0^{*}$ \\\\\n"
        "local & $0.635 \\pm 0.109$ & $\\mathbf{5{,}000{,}000} \\pm 0$ \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_as_markdown(runs):
    lines = laid_out(paper_table({"": runs}, test="t"), "markdown").splitlines()
    assert lines[:5] == [
        "| algorithm | accuracy ↑ |",
        "| --- | ---: |",
        "| fedavg | 0.515 ± 0.013\\* |",
        "| ditto_x | **0.710** ± 0.022 |",
        "| local | 0.635 ± 0.109 |",
    ]
    assert lines[6].startswith("\\*: differs from the best")


def test_as_csv_with_every_digit(runs):
    table = paper_table({"": runs}, test="t")
    first, second, _ = csv.DictReader(StringIO(laid_out(table, "csv")))
    assert float(first["mean"]) == table.columns[0].cells["fedavg"].values.mean
    assert float(first["p"]) == table.columns[0].cells["fedavg"].probability
    assert (second["best"], second["p"], second["against"]) == ("1", "", "ditto_x")


def test_experiments_have_heads_of_their_own_in_latex(tmp_path, runs):
    others = [scored(tmp_path / "other", r.algorithm, r.seed, {"c0": 0.5}) for r in runs]
    text = laid_out(paper_table({"set_1": runs, "set_2": others}), "latex")
    assert " & \\multicolumn{1}{c}{set\\_1} & \\multicolumn{1}{c}{set\\_2} \\\\" in text


@pytest.mark.parametrize(("value", "digits"), [(0.5, 3), (9.99, 3), (61.2, 2), (612.0, 1), (1e7, 0),
                                                (math.nan, 3)])  # fmt: skip
def test_about_four_digits_are_shown(value, digits):
    assert digits_of(value) == digits
