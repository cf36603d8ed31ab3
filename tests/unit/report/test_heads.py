"""Plots for algorithms with several heads."""

from __future__ import annotations

import pytest
from tests.unit.report.sample import load_run
from tests.unit.report.test_algorithm_notes import figures, folds, titles

from consort.core.row import Row
from consort.report.algorithm_notes import noted_curves, other_notes
from consort.report.heads import WEIGHT_TITLE, taken_together
from consort.report.run_set import RunSet

TASKS = {
    "identify": {"metric": "accuracy", "higher_is_better": True},
    "detect": {"metric": "rmse", "higher_is_better": False},
}
CHOICES = {1: [(1, 1), (0, 0)], 2: [(1, 0), (1, 0)], 3: [(-1, -1), (1, 0)]}
"""By round, what two clients took for the heads of identify and detect."""


def notes():
    for round_, taken in CHOICES.items():
        for client, pair in enumerate(taken):
            for task, prefix in zip(("identify", "detect"), pair, strict=True):
                yield Row(round_, "updates_taken", prefix, f"client-{client}", part=task)
            weight = 0.9 - 0.1 * round_ - 0.2 * client
            yield Row(round_, "task_weight", weight, f"client-{client}", part="detect")
            yield Row(round_, "task_weight", 1 - weight, f"client-{client}", part="identify")


def run_set(folder):
    return RunSet.of(
        [load_run(folder, algorithm="fedmh", tasks=TASKS, clients=2, rounds=3, notes=notes())]
    )


def test_combinations_are_counted_over_rounds_and_clients(tmp_path):
    run = run_set(tmp_path).first
    taken = {task: run.notes("updates_taken")[task] for task in ("identify", "detect")}
    (trace,) = taken_together(taken)["data"]
    assert trace["x"] == trace["y"] == ["0", "1", "2"]
    assert trace["z"] == [[1, 0, 0], [0, 1, 0], [0, 3, 1]]  # rows: identify


def test_what_tasks_weigh_is_a_curve_over_the_rounds(tmp_path):
    figure = noted_curves(run_set(tmp_path), "task_weight")
    lines = {t["name"]: t for t in figure["data"] if t.get("showlegend", True)}
    assert lines.keys() == {"detect", "identify"}
    assert lines["detect"]["x"] == [1, 2, 3]
    assert lines["detect"]["y"] == pytest.approx([0.7, 0.6, 0.5])
    assert lines["identify"]["y"] == pytest.approx([0.3, 0.4, 0.5])


def test_the_section_has_all_pictures_and_each_once(tmp_path):
    html = other_notes(run_set(tmp_path))
    assert titles(html) == [
        WEIGHT_TITLE,
        "Combinations of updates",
        "Updates used for the head of identify, by client and round",
        "Updates used for the head of detect, by client and round",
        "Weight of identify in a training step, by client and round",
        "Weight of detect in a training step, by client and round",
    ]
    assert folds(html) == [("fedmh, seed 0: tasks and heads", True)]
    identify = figures(html)[2]["data"][0]
    assert identify["z"] == [[2, 2, 0], [1, 2, 2]]


def test_algorithms_without_a_search_have_no_map_of_it(tmp_path):
    weights = [row for row in notes() if row.metric == "task_weight"]
    runs = [load_run(tmp_path, algorithm="fedmh", tasks=TASKS, clients=2, rounds=3, notes=weights)]
    assert "updates" not in other_notes(RunSet.of(runs))


def test_weights_that_never_change_are_a_curve_only(tmp_path):
    weights = [
        Row(r, "task_weight", 1.0, f"client-{c}", part="detect") for r in (1, 2, 3) for c in (0, 1)
    ]
    runs = [load_run(tmp_path, algorithm="sum", tasks=TASKS, clients=2, rounds=3, notes=weights)]
    assert titles(other_notes(RunSet.of(runs))) == [WEIGHT_TITLE]
