"""Runs read back: exact numbers from hand-made histories."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.report.sample import load_run

from consort.core.row import Row
from consort.errors import Failure, UsageError
from consort.results.result import Result
from consort.results.table import MIB, Published, by_algorithm, compare_table
from consort.run.history import History

SHAPE = {"shape": {"metric": "accuracy", "higher_is_better": True}}
DEPTH = {"depth": {"metric": "rmse", "higher_is_better": False}}
TEXTURE = {"texture": {"metric": "accuracy", "higher_is_better": True}}


def run(folder, rows, tasks=SHAPE, reports="global", algorithm="fedavg", seed=0, clients=()):
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "algorithm": algorithm,
        "seed": seed,
        "rounds": 1,
        "reports": reports,
        "recipe": {},
        "partition": "",
        "tasks": tasks,
        "clients": dict(clients),
        "workers": 1,
        "data": None,
    }
    (folder / "run.json").write_text(json.dumps(about))
    history = History(folder / "history.jsonl")
    for row in rows:
        history.add(row)
    history.flush()
    return Result.load(folder)


def score(
    round_, value, client="a", task="shape", split="test", metric="accuracy", model="global", n=10
):
    return Row(round_, metric, value, client, task, split, model, n=n)


def validated(values, task="shape", metric="accuracy"):
    """One client whose validation value in round 1, 2, … is as given."""
    return [
        score(round_, value, task=task, split=split, metric=metric)
        for round_, value in enumerate(values, 1)
        for split in ("validation", "test")
    ]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="nowhere holds no run: there is no such folder"):
        Result.load(tmp_path / "nowhere")


def test_a_folder_without_a_run(tmp_path):
    with pytest.raises(UsageError, match=r"no run\.json"):
        Result.load(tmp_path)


@pytest.mark.parametrize(
    "content", ['{"algorithm": ', "3", "[]", '{"algorithm": "fedavg", "seed": 0}']
)
def test_a_damaged_description(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(Failure, match=r"run\.json") as caught:
        Result.load(tmp_path)
    assert "start the run again" in str(caught.value)


@pytest.mark.parametrize("rows", [[], [Row(1, "seconds", 2.0)]])
def test_a_run_without_an_evaluation(tmp_path, rows):
    with pytest.raises(Failure, match="no results yet"):
        run(tmp_path, rows)


def test_a_history_without_a_file(tmp_path):
    run(tmp_path, [score(1, 0.5)])
    (tmp_path / "history.jsonl").unlink()
    with pytest.raises(Failure, match="no results yet"):
        Result.load(tmp_path)


def test_a_history_that_was_cut_off_while_writing(tmp_path):
    run(tmp_path, [score(1, 0.5), score(2, 0.6)])
    path = tmp_path / "history.jsonl"
    path.write_text(path.read_text()[:-10])
    assert Result.load(tmp_path).last_round == 1


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([0.1, 0.5, 0.4], 2),
        ([0.5, 0.5, 0.4], 1),
        ([0.1, math.nan, 0.05], 1),
        ([0.1, math.inf, 0.2], 3),
        ([0.3, 0.3], 1),
        ([math.nan, math.nan], 2),
    ],
)
def test_the_best_round_has_the_best_validation_value(tmp_path, values, best):
    assert run(tmp_path, validated(values)).best_round == best


def test_the_best_round_of_a_metric_to_minimise(tmp_path):
    rows = validated([0.9, 0.3, 0.5], "depth", "rmse")
    assert run(tmp_path, rows, DEPTH).best_round == 2


def test_the_best_round_averages_clients_not_examples(tmp_path):
    rows = [
        score(1, 0.9, "a", split="validation", n=1),
        score(1, 0.1, "b", split="validation", n=99),
        score(2, 0.4, "a", split="validation", n=1),
        score(2, 0.4, "b", split="validation", n=99),
    ]
    assert run(tmp_path, rows).best_round == 1


def test_metrics_of_different_units_count_alike(tmp_path):
    # accuracy: 0, 1, 0.5 of the way; rmse: 0, 0.75, 1 of the way.
    rows = validated([0.2, 0.6, 0.4]) + validated([900, 600, 500], "depth", "rmse")
    assert run(tmp_path, rows, SHAPE | DEPTH).best_round == 2


def test_without_validation_examples_the_last_round_is_best(tmp_path):
    result = run(tmp_path, [score(1, 0.9), score(2, 0.1)])
    assert result.best_round == 2


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_test_data_select_nothing(values, random):
    def chosen(folder, test_values):
        rows = [score(r, value, split="validation") for r, value in enumerate(values, 1)]
        rows += [score(r, value) for r, value in enumerate(test_values, 1)]
        return run(folder, rows).best_round

    with TemporaryDirectory() as folder:
        drawn = [random.random() for _ in values]
        assert chosen(Path(folder, "one"), values) == chosen(Path(folder, "two"), drawn)


def test_the_clients_in_a_round(tmp_path):
    rows = [
        score(1, 0.2, "b"),
        score(1, 0.4, "a"),
        score(1, 0.9, "a", model="personal"),
        score(1, 0.7, "a", split="validation"),
        score(1, 1.5, "a", metric="loss"),
        score(2, 0.6, "a"),
    ]
    result = run(tmp_path, rows)
    assert result.clients_at(1, "shape") == {"a": 0.4, "b": 0.2}
    assert list(result.clients_at(1, "shape")) == ["a", "b"]
    assert result.clients_at(1, "shape", model="personal") == {"a": 0.9}
    assert result.clients_at(1, "shape", split="validation") == {"a": 0.7}
    assert result.clients_at(1, "shape", "loss") == {"a": 1.5}
    assert result.clients_at(2, "shape") == {"a": 0.6}
    assert result.clients_at(3, "shape") == {}
    with pytest.raises(UsageError, match="no task `colour`; there are shape"):
        result.clients_at(1, "colour")


def test_spread_of_the_clients(tmp_path):
    spread = run(tmp_path, [score(1, 0.2, "a", n=10), score(1, 0.6, "b", n=30)]).spread(1, "shape")
    assert spread.mean == pytest.approx(0.4)
    assert spread.std == pytest.approx(0.2)
    assert (spread.min, spread.max) == (0.2, 0.6)
    assert spread.weighted == pytest.approx(0.5)


def test_spread_of_nobody(tmp_path):
    with pytest.raises(Failure, match="nothing was measured of task shape in round 9"):
        run(tmp_path, [score(1, 0.2)]).spread(9, "shape")


def test_a_curve_has_the_mean_and_the_quartiles(tmp_path):
    rows = [
        score(1, value, client) for client, value in zip("abcde", (1, 2, 3, 4, 10), strict=True)
    ]
    result = run(tmp_path, [*rows, score(4, 7.0)])
    assert result.curve("shape") == [(1, 4.0, 2.0, 4.0), (4, 7.0, 7.0, 7.0)]
    assert result.curve("shape", "accuracy", "validation") == []


def test_a_curve_of_clients_that_diverged(tmp_path):
    (point,) = run(tmp_path, [score(1, 0.5, "a"), score(1, math.nan, "b")]).curve("shape")
    assert all(map(math.isnan, point[1:]))


def traffic():
    return [
        Row(1, "bytes_up", 100, "a", part="encoder"),
        Row(1, "bytes_up", 7, "a", part="heads"),
        Row(1, "bytes_up", 50, "a", part="encoder"),
        Row(2, "bytes_up", 30, "b", part="encoder"),
        Row(2, "bytes_down", 1000, "b", part="encoder"),
    ]


def test_bytes_by_every_aspect(tmp_path):
    result = run(tmp_path, [*traffic(), score(2, 0.5)])
    assert result.bytes("up") == {"encoder": 180, "heads": 7}
    assert result.bytes("up", by="client") == {"a": 157, "b": 30}
    assert result.bytes("up", by="round") == {1: 157, 2: 30}
    assert result.bytes("up", by="round", role="heads") == {1: 7}
    assert result.bytes("down") == {"encoder": 1000}
    assert [result.value(f"bytes{way}") for way in ("", "_up", "_down")] == [1187, 187, 1000]


def test_nothing_sent_is_zero_bytes(tmp_path):
    assert run(tmp_path, [score(1, 0.5)]).value("bytes") == 0


def test_seconds(tmp_path):
    rows = [
        Row(1, "seconds", 1.5, "a", part="train"),
        Row(1, "seconds", 0.25, "a", part="choose"),
        Row(1, "seconds", 4.0),
        Row(2, "seconds", 2.0),
        Row(1, "evaluation_seconds", 9.0),
        score(2, 0.5),
    ]
    result = run(tmp_path, rows)
    assert result.value("seconds") == 6.0
    assert result.per_round("seconds") == {1: 4.0, 2: 2.0}
    assert result.per_round("evaluation_seconds") == {1: 9.0}
    assert result.client_seconds() == {"a": 1.75}
    assert result.rounds_done == 2


def test_notes_by_part_round_and_client(tmp_path):
    rows = [
        Row(1, "weight", 0.25, "a"),
        Row(1, "weight", 0.75, "b"),
        Row(2, "weight", 1.0, "b"),
        Row(2, "weight", 5.0),
        Row(1, "weight", 0.5, "a", part="0"),
        Row(1, "objective", 3.0),
        Row(2, "seconds", 4.0),
        Row(2, "seconds", 4.0, "a", part="train"),
        Row(2, "evaluation_seconds", 4.0),
        Row(2, "peak_memory_mib", 4.0),
        Row(2, "bytes_up", 4, "a", part="encoder"),
        score(2, 0.5),
    ]
    result = run(tmp_path, rows)
    assert result.noted == ["objective", "weight"]
    assert result.notes("weight") == {
        "": {1: {"a": 0.25, "b": 0.75}, 2: {"b": 1.0, "": 5.0}},
        "0": {1: {"a": 0.5}},
    }
    assert result.notes("objective") == {"": {1: {"": 3.0}}}
    assert result.notes("nothing") == {}
    assert result.per_round("weight") == {2: 5.0}
    assert result.noted == ["objective", "weight"]


def test_values_of_one_task(tmp_path):
    rows = [
        score(1, 0.9, "a", split="validation"),
        score(2, 0.5, "a", split="validation"),
        score(1, 0.6, "a"),
        score(1, 0.2, "b"),
        score(2, 0.5, "a"),
        score(2, 0.4, "b"),
        score(2, 1.0, "a", model="personal"),
    ]
    result = run(tmp_path, rows)
    assert result.value("accuracy") == pytest.approx(0.45)
    assert result.value("best_accuracy") == pytest.approx(0.4)
    assert result.value("worst_accuracy") == 0.4


def test_the_worst_of_a_metric_to_minimise_is_the_largest(tmp_path):
    rows = [score(1, v, c, "depth", metric="rmse") for c, v in (("a", 1.0), ("b", 3.0))]
    result = run(tmp_path, rows, DEPTH)
    assert result.value("rmse") == 2.0
    assert result.value("worst_rmse") == 3.0


def test_every_client_counts_once_whatever_its_tasks(tmp_path):
    rows = [
        score(1, 0.2, "a", "shape"),
        score(1, 0.6, "a", "texture"),
        score(1, 1.0, "b", "shape"),
        score(1, 5.0, "b", "depth", metric="rmse"),
    ]
    result = run(tmp_path, rows, SHAPE | TEXTURE | DEPTH)
    assert result.by_client("accuracy", 1) == {"a": pytest.approx(0.4), "b": 1.0}
    assert result.value("accuracy") == pytest.approx(0.7)
    assert result.value("worst_accuracy") == pytest.approx(0.4)
    assert result.value("rmse") == 5.0
    assert result.own_metrics == {"accuracy": True, "rmse": False}


def test_what_diverged_is_not_a_number(tmp_path):
    result = run(tmp_path, [score(1, 0.5, "a"), score(1, math.nan, "b")])
    assert math.isnan(result.value("accuracy"))
    assert math.isnan(result.value("worst_accuracy"))


def test_every_name_has_a_value_and_no_other(tmp_path):
    result = load_run(tmp_path / "run")
    assert {"accuracy", "best_loss", "worst_rmse", "bytes_up", "seconds"} <= set(
        result.metric_names()
    )
    assert all(math.isfinite(result.value(name)) for name in result.metric_names())
    with pytest.raises(UsageError, match="no value 'worst_loss': did you mean"):
        result.value("worst_loss")


def test_algorithms_are_grouped_over_seeds(tmp_path):
    runs = [
        run(tmp_path / f"{name}{seed}", [score(1, 0.5)], algorithm=name, seed=seed)
        for seed in (1, 0)
        for name in ("local", "fedavg")
    ]
    groups = by_algorithm(runs)
    assert list(groups) == ["local", "fedavg"]
    assert [r.seed for r in groups["fedavg"]] == [0, 1]


def test_runs_of_the_same_seed_are_told_apart(tmp_path):
    runs = [run(tmp_path / name, [score(1, 0.5)]) for name in ("slow", "fast")]
    assert list(by_algorithm(runs)) == [f"fedavg ({r.folder})" for r in runs]


def test_a_comparison_summarises_over_seeds(tmp_path):
    def rows(first, second):
        return [
            Row(1, "seconds", 3.0),
            Row(2, "seconds", 5.0),
            Row(1, "bytes_up", MIB, "a", part="encoder"),
            Row(2, "bytes_down", 3 * MIB, "a", part="encoder"),
            score(1, 0.9, "a", split="validation"),
            score(2, 0.8, "a", split="validation"),
            *(score(r, v, c) for r in (1, 2) for c, v in (("a", first * r), ("b", second * r))),
        ]

    runs = [
        run(tmp_path / "0", rows(0.1, 0.3), seed=0),
        run(tmp_path / "1", rows(0.2, 0.4), seed=1),
    ]
    published = [
        Published("another metric", "rmse", {"fedavg": 1.0}),
        Published("the paper", "accuracy", {"fedavg": 61.5, "fedper": 1.0}),
    ]
    (line,) = compare_table(runs, published)
    assert (line.algorithm, line.metric, line.higher_is_better) == ("fedavg", "accuracy", True)
    assert (line.last.mean, line.last.n) == (pytest.approx(0.5), 2)
    assert line.last.std == pytest.approx(math.sqrt(0.02))
    assert line.best.mean == pytest.approx(0.25)
    assert line.client_std.mean == pytest.approx(0.2)
    assert line.worst.mean == pytest.approx(0.3)
    assert line.mib_per_round.mean == 2.0
    assert line.seconds_per_round.mean == 4.0
    assert line.published == pytest.approx(0.615)


def test_published_fractions_are_taken_as_they_are(tmp_path):
    published = [Published("the paper", "accuracy", {"fedavg": 0.6}, percent=False)]
    (line,) = compare_table([run(tmp_path, [score(1, 0.5)])], published)
    assert line.published == 0.6


def test_different_metrics_have_their_own_lines(tmp_path):
    lines = compare_table([load_run(tmp_path / "run")])
    assert [line.metric for line in lines] == ["accuracy", "rmse"]
    assert [line.published for line in lines] == [None, None]


def test_a_published_metric_that_stands_for_no_task_has_a_line_too(tmp_path):
    rows = [
        score(1, value, client, metric=metric)
        for metric, values in (("accuracy", (0.5, 0.7)), ("f1", (0.2, 0.4)), ("eer", (0.1, 0.3)))
        for client, value in zip("ab", values, strict=True)
    ]
    published = [
        Published("the paper", "f1", {"fedavg": 80.0}),
        Published("the paper", "eer", {"fedper": 5.0}, higher_is_better=False),
        Published("the paper", "auc", {"fedavg": 99.0}),
        Published("the paper", "bytes", {"fedavg": 99.0}),
    ]
    lines = compare_table([run(tmp_path, rows)], published)
    assert [line.metric for line in lines] == ["accuracy", "f1", "eer"]
    assert [line.higher_is_better for line in lines] == [True, True, False]
    assert [line.worst.mean for line in lines] == [0.5, 0.2, 0.3]
    assert [line.published for line in lines] == [None, 0.8, None]


def test_what_is_published_of_a_group_or_a_task_has_lines_of_its_own(tmp_path):
    tasks = {task: {"metric": "miou", "higher_is_better": True} for task in ("parts", "segment")}
    groups = {"a": "one", "b": "rooms", "c": "rooms"}
    values = {
        ("a", "parts"): 0.1,
        ("b", "segment"): 0.2,
        ("c", "segment"): 0.4,
        ("b", "parts"): 0.8,
    }
    rows = [score(1, v, c, t, metric="miou") for (c, t), v in values.items()]
    rows += [score(1, 9.0, "a", "parts", metric="angle"), Row(1, "seconds", 3.0)]
    clients = {name: {"group": group} for name, group in groups.items()}
    result = run(tmp_path, rows, tasks, clients=clients)
    published = [
        Published("paper", "miou", {"fedavg": 60}, group="rooms", task="segment"),
        Published("paper", "miou", {"fedper": 60}, task="parts"),
        Published("paper", "angle", {"fedavg": 7}, False, False, "one"),
        Published("paper", "miou", {"fedavg": 50}, group="nobody"),
        Published("paper", "miou", {"fedavg": 45}),
    ]
    whole, rooms, parts, angle = compare_table([result], published)
    assert (whole.metric, whole.published) == ("miou", 0.45)
    assert (rooms.metric, rooms.published) == ("miou of rooms, segment", 0.6)
    assert (rooms.last.mean, rooms.worst.mean) == (pytest.approx(0.3), 0.2)
    assert rooms.seconds_per_round.mean == 3, "the whole run's"
    assert (parts.metric, parts.published) == ("miou of parts", None)
    assert parts.last.mean == pytest.approx(0.45)
    assert (angle.metric, angle.published, angle.higher_is_better) == ("angle of one", 7, False)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 3), st.sampled_from("ab"), st.sampled_from(["encoder", "heads"]),
            st.sampled_from(["bytes_up", "bytes_down"]), st.integers(0, 2**40),
        )
    )
)  # fmt: skip
def test_bytes_add_up_to_the_same_total_by_any_aspect(sent):
    rows = [Row(r, metric, size, client, part=role) for r, client, role, metric, size in sent]
    with TemporaryDirectory() as folder:
        result = run(Path(folder), [*rows, score(1, 0.5)])
    for way in ("up", "down"):
        totals = {sum(result.bytes(way, by).values()) for by in ("round", "client", "role")}
        assert totals == {result.value(f"bytes_{way}")}


def test_results_and_reports_do_not_need_torch():
    code = (
        "import sys, consort.results.result, consort.report.page; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def averaged(folder, rows, rounds, **settings):
    """A run whose recipe takes values over the last rounds."""
    run(folder, rows, **settings)
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(about | {"recipe": {"average_rounds": rounds}}))
    return Result.load(folder)


@pytest.mark.parametrize(
    ("rounds", "counted", "mean", "worst"),
    [(1, [10], 0.45, 0.3), (2, [9, 10], 0.525, 0.5), (9, [9, 10], 0.525, 0.5),
     (10, [1, 9, 10], 0.4, 0.4)],
)  # fmt: skip
def test_values_at_the_end_are_means_over_the_last_rounds(tmp_path, rounds, counted, mean, worst):
    """Rounds 1, 9 and 10 were evaluated."""
    a, b = {1: 0.1, 9: 0.5, 10: 0.6}, {1: 0.2, 9: 0.7, 10: 0.3}
    rows = [score(r, v, c) for c, values in (("a", a), ("b", b)) for r, v in values.items()]
    result = averaged(tmp_path, rows, rounds)
    assert result.last_rounds == counted
    assert result.value("accuracy") == pytest.approx(mean)
    assert result.value("worst_accuracy") == pytest.approx(worst)
    (line,) = compare_table([result])
    assert (line.rounds, line.last.mean) == (rounds, pytest.approx(mean))


def test_a_round_that_diverged_spoils_the_mean_of_the_last_rounds(tmp_path):
    rows = [score(1, math.nan), score(2, 0.5)]
    assert math.isnan(averaged(tmp_path / "both", rows, 2).value("accuracy"))
    assert averaged(tmp_path / "last", rows, 1).value("accuracy") == 0.5


def test_weighted_values_count_every_example_once(tmp_path):
    rows = [score(1, 0.9, "a", n=1), score(1, 0.1, "b", n=99)]
    result = run(tmp_path, rows)
    assert result.value("weighted_accuracy") == pytest.approx((0.9 + 9.9) / 100)
    assert result.value("accuracy") == pytest.approx(0.5)


def test_users_whom_no_client_knows_have_values_of_their_own(tmp_path):
    rows = [
        score(2, 0.5),
        score(2, 0.7, "a", split="unseen_others"),
        score(2, 0.8, "b", split="unseen_others"),
        score(2, 0.1, "b", split="unseen_others", model="tuned"),
    ]
    result = run(tmp_path, rows)
    assert result.value("unseen_others_accuracy") == pytest.approx(0.75)
    assert result.value("accuracy") == 0.5
    assert "unseen_others_accuracy" in result.metric_names()


def test_curves_are_kept_apart_from_numbers(tmp_path):
    points = [
        Row(r, "det", v, "a", "shape", "test", "global", part, n=3)
        for r, part, v in ((1, "0.1", 0.9), (2, "0.1", 0.4), (2, "0.2", 0.3))
    ]
    result = run(tmp_path, [score(1, 0.5), score(2, 0.5), *points])
    assert result.graph("shape", "det") == {"a": {"0.1": 0.4, "0.2": 0.3}}
    assert result.graph("shape", "roc") == {}
    assert "det" not in result.metric_names()
