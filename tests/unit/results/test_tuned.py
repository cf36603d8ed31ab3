"""What local training before the test brings, in results, tables and pages."""

from __future__ import annotations

import json
import math
import re

import pytest
from tests.unit.cli.command import consort, write_recipe
from tests.unit.report.sample import TASKS, load_run
from tests.unit.report.test_tables import heads, rows
from tests.unit.results.test_result import DEPTH, run, score

from consort.core.row import Row
from consort.errors import UsageError
from consort.report.headline import headline, headline_tiles
from consort.report.numbers import UNKNOWN
from consort.results.result import Result
from consort.results.table import compare_table

COLUMN = "After fine-tuning"


def tuned(round_, value, client="a", **where):
    return score(round_, value, client, model="tuned", **where)


# Values


def test_values_after_local_training(tmp_path):
    result = run(
        tmp_path,
        [
            score(2, 0.1, "a"), score(2, 0.2, "b"),
            tuned(1, 0.9, "a"), tuned(1, 0.9, "b"),
            tuned(2, 0.5, "a"), tuned(2, 0.7, "b"),
            tuned(2, 1.0, "a", split="validation"),
            tuned(2, 3.0, "a", metric="loss"), tuned(2, 5.0, "b", metric="loss"),
        ],
    )  # fmt: skip
    assert result.value("accuracy") == pytest.approx(0.15)
    assert result.value("worst_accuracy") == 0.1
    assert result.value("tuned_accuracy") == pytest.approx(0.6)
    assert result.value("worst_tuned_accuracy") == 0.5
    assert result.value("tuned_loss") == 4.0


def test_the_worst_of_a_metric_to_minimise_is_the_largest(tmp_path):
    found = [tuned(1, v, c, task="depth", metric="rmse") for c, v in (("a", 1.0), ("b", 3.0))]
    received = score(1, 9.0, task="depth", metric="rmse")
    result = run(tmp_path, [*found, received], DEPTH)
    assert result.value("worst_tuned_rmse") == 3.0


def test_what_diverged_while_it_was_tuned_is_not_a_number(tmp_path):
    result = run(tmp_path, [score(1, 0.5), tuned(1, 0.5, "a"), tuned(1, math.nan, "b")])
    assert math.isnan(result.value("tuned_accuracy"))
    assert math.isnan(result.value("worst_tuned_accuracy"))
    assert result.value("accuracy") == 0.5


def test_without_tuning_there_are_no_such_values(tmp_path):
    result = run(tmp_path, [score(1, 0.5)])
    assert not any("tuned" in name for name in result.metric_names())
    with pytest.raises(UsageError, match="no value 'tuned_accuracy': did you mean"):
        result.value("tuned_accuracy")


def test_tuned_models_choose_no_round(tmp_path):
    received = [score(r, v, split=split) for r, v in ((1, 0.9), (2, 0.1))
                for split in ("validation", "test")]  # fmt: skip
    better = [tuned(r, v, split="validation") for r, v in ((1, 0.1), (2, 0.9))]
    assert run(tmp_path, received + better).best_round == 1


def test_an_algorithm_that_reports_its_tuned_model_has_both_names(tmp_path):
    result = run(tmp_path, [score(1, 0.2), tuned(1, 0.6)], reports="tuned")
    assert result.value("accuracy") == result.value("tuned_accuracy") == 0.6
    assert result.value("worst_accuracy") == result.value("worst_tuned_accuracy") == 0.6


def test_seconds_of_all_clients_together(tmp_path):
    result = run(
        tmp_path,
        [
            Row(1, "seconds", 1.5, "a", part="train"),
            Row(1, "seconds", 0.25, "a", part="choose"),
            Row(2, "seconds", 2.0, "b", part="train"),
            Row(2, "seconds", 60.0),
            score(2, 0.5),
        ],
    )
    assert result.value("client_seconds") == 3.75
    assert result.value("seconds") == 60.0
    assert run(tmp_path / "idle", [score(1, 0.5)]).value("client_seconds") == 0.0


# Tables


def test_a_line_has_the_tuned_value_where_every_seed_has_it(tmp_path):
    runs = [
        run(tmp_path / "a0", [score(1, 0.2), tuned(1, 0.5)], algorithm="a", seed=0),
        run(tmp_path / "a1", [score(1, 0.2), tuned(1, 0.7)], algorithm="a", seed=1),
        run(tmp_path / "b0", [score(1, 0.2), tuned(1, 0.5)], algorithm="b", seed=0),
        run(tmp_path / "b1", [score(1, 0.2)], algorithm="b", seed=1),
    ]
    a, b = compare_table(runs)
    assert (a.tuned.mean, a.tuned.n) == (pytest.approx(0.6), 2)
    assert a.tuned.std == pytest.approx(math.sqrt(0.02))
    assert a.last.mean == pytest.approx(0.2)
    assert b.tuned is None


def headline_of(folder, values):
    runs = [
        run(
            folder / name,
            [score(1, 0.2), *([tuned(1, value)] if value is not None else [])],
            algorithm=name,
        )
        for name, value in values.items()
    ]
    return headline(compare_table(runs))


def test_the_headline_has_a_column_of_its_own_for_it(tmp_path):
    page = headline_of(tmp_path, {"a": 0.5, "b": None, "c": 0.7})
    place = heads(page).index(COLUMN)
    assert [row[place] for row in rows(page)] == ["0.500", UNKNOWN, "0.700"]


@pytest.mark.parametrize(
    ("values", "bold"),
    [
        ({"a": 0.5, "b": None, "c": 0.7}, ["c"]),
        ({"a": 0.5, "b": 0.5}, ["a", "b"]),
        ({"a": 0.5, "b": None}, []),
    ],
)
def test_the_best_after_local_training_is_bold(values, bold, tmp_path):
    page = headline_of(tmp_path, values)
    place = heads(page).index(COLUMN)
    lines = re.findall(r"<tr>(.*?)</tr>", page)[1:]
    cells = [re.findall(r"<td([^>]*)>", line)[place] for line in lines]
    found = [name for name, cell in zip(values, cells, strict=True) if "best" in cell]
    assert found == bold


def test_the_headline_has_no_such_column_where_nothing_was_tuned(tmp_path):
    assert COLUMN not in heads(headline_of(tmp_path, {"a": None, "b": None}))


def test_the_tiles_of_one_run_show_it(tmp_path):
    tasks = {"shape": TASKS["shape"]}
    plain = load_run(tmp_path / "plain", tasks=tasks)
    assert "tuned" not in headline_tiles(compare_table([plain]))
    both = load_run(tmp_path / "both", tasks=tasks, models=("global", "tuned"))
    page = headline_tiles(compare_table([both]))
    assert "Test accuracy, fine-tuned" in page
    assert f"<dd>{both.value('tuned_accuracy'):.3f}</dd>" in page


# The command


def line_of(name, shown):
    (line,) = (line for line in shown.splitlines() if line.startswith(f"│ {name} "))
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_the_command_shows_both_sides_of_local_training(tmp_path):
    recipe = write_recipe(tmp_path, ("rounds = 2", "rounds = 2\ntuning_epochs = 1"))
    out = tmp_path / "out"
    outcome = consort("compare", recipe, "--out", out)
    assert outcome.code == 0
    head = next(line for line in outcome.out.splitlines() if "algorithm" in line)
    columns = [cell.strip() for cell in head.strip("┃").split("┃")]
    assert columns == ["algorithm", "metric", "last", "best", "worst", "tuned", "MiB", "s"]
    assert "tuned: after fine-tuning on each client before the test" in " ".join(
        outcome.out.split()
    )
    for name in ("fedavg", "ditto"):
        value = Result.load(out / name / "seed-0").value("tuned_accuracy")
        assert line_of(name, outcome.out)[columns.index("tuned")] == f"{value:.3f}"
    assert f">{COLUMN}<" in (out / "report.html").read_text()


def test_the_command_shows_no_such_column_where_nothing_is_tuned(tmp_path):
    outcome = consort("compare", write_recipe(tmp_path), "--out", tmp_path / "out")
    assert outcome.code == 0
    assert "tuned" not in outcome.out
    assert COLUMN not in (tmp_path / "out" / "report.html").read_text()


def test_claims_and_scripts_know_the_values(tmp_path):
    claims = '["client_seconds(fedavg) > 0", "worst_tuned_accuracy(ditto) <= tuned_loss(ditto)"]'
    recipe = write_recipe(
        tmp_path,
        ("rounds = 2", "rounds = 2\ntuning_epochs = 1"),
        ('title = "tiny"', f'title = "tiny"\nclaims = {claims}'),
    )
    outcome = consort("compare", recipe, "--json", "--out", tmp_path / "out")
    assert outcome.code == 0
    told = json.loads(outcome.out)
    assert len(told["claims"]) == 2
    for entry in told["runs"]:
        result = Result.load(tmp_path / "out" / entry["algorithm"] / "seed-0")
        for name in ("tuned_accuracy", "worst_tuned_accuracy", "tuned_loss", "client_seconds"):
            assert entry[name] == result.value(name)
