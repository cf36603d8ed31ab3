"""Figures on pages are those of the files in `results/`, and these are of today's recipes."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.docs.pages import ROOT
from tests.unit.results.test_records import ORIGIN

from consort.errors import Failure
from consort.experiment.loading import load_recipe
from consort.experiment.recording import settings_of
from consort.experiment.shipped import find_recipe
from consort.results.records import Record, Score, add_records, read_records

sys.path.append(str(ROOT / "docs"))
from result_tables import BLOCK, PAGES, RESULTS, generated

FILES = sorted(RESULTS.rglob("*.csv"))


@pytest.mark.parametrize("path", sorted(PAGES.rglob("*.md")), ids=lambda path: path.name)
def test_tables_of_pages_are_up_to_date(path):
    text = path.read_text("utf-8")
    assert generated(text) == text, "run `make tables`"
    assert text.count("<!-- results ") + text.count("<!-- claims ") == len(BLOCK.findall(text))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_results_are_of_the_recipe_as_it_is(path):
    scale = None if path.stem == "default" else path.stem
    recipe = load_recipe(find_recipe(str(path.parent.relative_to(RESULTS))), scale)
    for record in read_records(path):
        name = record.origin.algorithm
        assert record.origin.settings == settings_of(recipe, name), f"{name}: run it again"
        assert record.origin.rounds == recipe.run.rounds


def records() -> list[Record]:
    """Two algorithms and two seeds; a third one diverged."""
    made = []
    for algorithm, kind, accuracies, depths in (
        ("local_only", "LocalOnly", (0.5, 0.7), (2.0, 4.0)),
        ("fedavg", "FedAvg", (0.6, 0.9), (1.0, 3.0)),
        ("scaffold", "Scaffold", (math.nan, 0.1), (1.0, 1.0)),
    ):
        for seed, (accuracy, depth) in enumerate(zip(accuracies, depths, strict=True)):
            origin = replace(ORIGIN, algorithm=algorithm, kind=kind, seed=seed)
            values = {"accuracy": accuracy, "bytes": 100.0 * len(algorithm)}
            made.append(Record(origin, values, {"a/depth": Score(depth, False)}))
    return made


PAGE = """before
<!-- results fedfew/table1 desk
accuracy% = accuracy
accuracy% - local_only = over local
bytes / local_only = traffic
delta_m = gain
-->
<!-- end -->
after
"""


def test_a_table_shows_means_differences_ratios_and_gains(tmp_path: Path):
    add_records(tmp_path / "results" / "fedfew" / "table1" / "desk.csv", records())
    text = generated(PAGE, tmp_path / "results")
    assert generated(text, tmp_path / "results") == text
    *_, head, line, first, second, third, _, told, _, end, after = text.splitlines()
    assert head == "| method | accuracy | over local | traffic | gain |"
    assert line == "|---|---|---|---|---|"
    # differences 10 and 20: 15 ± 12.7 · 7.07 / √2
    assert first == "| `fedavg` | 75.0 ± 21.2 | +15.0 [-48.5, +78.5] | 0.60 | 37.5 ± 17.7 |"
    assert second == "| `local_only` | 60.0 ± 14.1 |  | 1.00 | 0.000 ± 0.000 |"
    assert third == "| `scaffold` | – | – | 0.80 | 62.5 ± 17.7 |"  # noqa: RUF001
    assert "seeds 0 and 1; A, processor, torch 2.13.0; `results/fedfew/table1/desk.csv`" in told
    assert (end, after) == ("<!-- end -->", "after")


def test_a_column_can_be_of_another_recipe_or_a_corrected_test(tmp_path: Path):
    """Differences 0.1 and 0.2 to local training: t = 3, with one degree of freedom."""
    some = [r for r in records() if r.origin.algorithm != "scaffold"]
    add_records(tmp_path / "results" / "fedfew" / "table1" / "desk.csv", some)
    add_records(tmp_path / "results" / "fedfew" / "plus" / "desk.csv", some[:2])
    columns = "accuracy% = a\nfedfew/plus@desk accuracy% = b\nbytes ~ local_only = c\n"
    columns += "accuracy ~ local_only = p\n"
    page = f"<!-- results fedfew/table1 desk\n{columns}-->\n<!-- end -->\n"
    text = generated(page, tmp_path / "results")
    assert "| `fedavg` | 75.0 ± 21.2 | – | < 0.001 | 0.205 |" in text  # noqa: RUF001
    assert "| `local_only` | 60.0 ± 14.1 | 60.0 ± 14.1 |  |  |" in text
    assert "results/fedfew/plus/desk.csv" in text


def test_a_corrected_test_counts_the_rows(tmp_path: Path):
    more = records()[:4] + [
        replace(r, origin=replace(r.origin, algorithm="ditto")) for r in records()[2:4]
    ]
    add_records(tmp_path / "results" / "fedfew" / "table1" / "desk.csv", more)
    page = "<!-- results fedfew/table1 desk\naccuracy ~ local_only = p\n-->\n<!-- end -->\n"
    text = generated(page, tmp_path / "results")
    assert "| `fedavg` | 0.410 |" in text
    assert "| `ditto` | 0.410 |" in text


def test_claims_are_judged_by_the_file(tmp_path: Path):
    add_records(tmp_path / "results" / "fedfew" / "plus" / "desk.csv", records())
    recipe = load_recipe(find_recipe("fedfew/plus"), "desk")
    page = "<!-- claims fedfew/plus desk -->\n<!-- end -->\n"
    with pytest.raises(Exception, match="metric"):  # these runs have no `worst_accuracy`
        generated(page, tmp_path / "results")
    named = dict.fromkeys(("worst_accuracy", "client_seconds", "tuned_accuracy"), 1.0)
    more = [replace(r, values=dict(r.values) | named) for r in records()]
    add_records(tmp_path / "results" / "fedfew" / "plus" / "desk.csv", more)
    text = generated(page, tmp_path / "results")
    assert all(claim in text for claim in recipe.claims)
    assert "undecided" in text


@pytest.mark.parametrize(("page", "message"), [
    (PAGE.replace("delta_m = gain", "delta_m"), "`delta_m` is no column"),
    (PAGE.replace("desk", "synthetic"), r"synthetic\.csv: cannot be read"),
])  # fmt: skip
def test_what_is_missing_is_named(page, message, tmp_path: Path):
    add_records(tmp_path / "results" / "fedfew" / "table1" / "desk.csv", records())
    with pytest.raises(Failure, match=message):
        generated(page, tmp_path / "results")
