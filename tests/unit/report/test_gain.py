"""The gain over training alone, as numbers."""

from __future__ import annotations

import json
import math
import re

import pytest
from tests.unit.report.sample import load_run
from tests.unit.report.test_algorithm_notes import figures

from consort.core.row import Row
from consort.report.gain import Gain, gain
from consort.report.run_set import RunSet
from consort.results.gains import client_scores, gain_over, gains_apart, scores
from consort.results.result import Result
from consort.run.history import History

TASKS = {
    "seg": {"metric": "miou", "higher_is_better": True},
    "depth": {"metric": "rmse", "higher_is_better": False},
}
VALUES = {
    "alone": [{"a": {"seg": 0.5}, "b": {"seg": 0.4, "depth": 2.0}}] * 3,
    "ours": [
        {"a": {"seg": 0.55}, "b": {"seg": 0.4, "depth": 1.9}},
        {"a": {"seg": 0.60}, "b": {"seg": 0.3, "depth": 1.8}},
        {"a": {"seg": 0.65}, "b": {"seg": 0.2, "depth": 1.7}},
    ],
}
"""By algorithm and seed: two clients in groups of their own, one of them with two tasks."""


def result(folder, algorithm, seed, values):
    kind = "LocalOnly" if algorithm == "alone" else "Ours"
    clients = {
        client: {"group": f"group of {client}", "tasks": list(tasks)}
        for client, tasks in values.items()
    }
    place = load_run(
        folder / f"{algorithm}-{seed}", algorithm=algorithm, seed=seed, rounds=1, tasks=TASKS,
        about={"kind": kind},
    ).folder  # fmt: skip
    about = json.loads((place / "run.json").read_text()) | {"clients": clients}
    (place / "run.json").write_text(json.dumps(about))
    (place / "history.jsonl").unlink()
    history = History(place / "history.jsonl")
    for client, tasks in values.items():
        for task, value in tasks.items():
            metric = TASKS[task]["metric"]
            history.add(Row(1, metric, value, client, task, "test", "global", n=5))
    history.flush()
    return Result.load(place)


def study_of(folder, values=VALUES):
    return RunSet.of(
        [
            result(folder, algorithm, seed, of_seed)
            for algorithm, seeds in values.items()
            for seed, of_seed in enumerate(seeds)
        ]
    )


def test_what_the_gain_is_made_of(tmp_path):
    alone, *_, ours, _, _ = study_of(tmp_path).runs
    apart = gains_apart(ours, alone, client_scores)
    assert apart == pytest.approx({("a", "seg"): 10, ("b", "seg"): 0, ("b", "depth"): 5})
    assert gain_over(ours, alone) == pytest.approx(5)
    by_group = gains_apart(ours, alone, scores)
    assert sorted(by_group) == [
        ("group of a", "seg"), ("group of b", "depth"), ("group of b", "seg"),
    ]  # fmt: skip


def test_it_is_over_as_many_of_the_last_rounds_as_the_recipe_says(tmp_path):
    run = result(tmp_path, "ours", 0, {"a": {"seg": 0.5}})
    later = History(run.folder / "history.jsonl")
    for round_, value in ((2, 0.6), (3, 0.8)):
        later.add(Row(round_, "miou", value, "a", "seg", "test", "global", n=5))
    later.flush()
    assert client_scores(Result.load(run.folder)) == {("a", "seg"): 0.8}
    about = json.loads((run.folder / "run.json").read_text()) | {"recipe": {"average_rounds": 2}}
    (run.folder / "run.json").write_text(json.dumps(about))
    assert client_scores(Result.load(run.folder)) == pytest.approx({("a", "seg"): 0.7})


def test_what_is_missing_zero_or_infinite_is_left_out(tmp_path):
    alone = result(tmp_path, "alone", 0, {"a": {"seg": 0.0, "depth": 2.0}, "b": {"seg": 0.5}})
    ours = result(tmp_path, "ours", 0, {"a": {"seg": 0.5, "depth": math.inf}, "c": {"seg": 1.0}})
    assert gains_apart(ours, alone, client_scores) == {}
    assert math.isnan(gain_over(ours, alone))


def test_the_interval_is_students():
    found = Gain([5.0, 5.0 / 3, -5.0 / 3])
    assert found.mean == pytest.approx(5 / 3)
    half = 4.302653 * (10 / 3) / math.sqrt(3)  # t of 2 degrees of freedom, deviation 10/3
    assert found.interval == pytest.approx((5 / 3 - half, 5 / 3 + half), abs=1e-5)
    assert found.cell.text == f"+1.67 [{5 / 3 - half:+.2f}, {5 / 3 + half:+.2f}]"


def test_one_seed_has_no_interval_and_no_value_none_either():
    assert Gain([3.0]).cell.text == "+3.00"
    assert Gain([]).cell.text == Gain([math.nan, 1.0]).cell.text == "–"  # noqa: RUF001


def test_the_table_and_the_pictures(tmp_path):
    from plotly.graph_objects import Figure

    html = gain(study_of(tmp_path))
    whole, apart = re.findall(r"<tbody>(.*?)</tbody>", html)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", whole)
    # By seed (10 + 0 + 5) / 3, (20 - 25 + 10) / 3 and (30 - 50 + 15) / 3 percent.
    assert cells == [
        "ours", "+1.67", Gain([5.0, 5 / 3, -5 / 3]).interval_text, "3", "1 of 3", "0 of 3",
        "b seg -25.0",
    ]  # fmt: skip
    lines = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in apart.split("</tr>")[:-1]]
    assert [line[:3] for line in lines] == [
        ["a", "seg", "miou"], ["b", "depth", "rmse"], ["b", "seg", "miou"],
    ]  # fmt: skip
    assert lines[0][3] == Gain([10, 20, 30]).cell.text
    forest, tasks = figures(html)
    Figure(forest)
    Figure(tasks)
    assert forest["data"][0]["x"] == pytest.approx([5 / 3], abs=1e-4)
    assert forest["data"][0]["error_x"]["array"] == pytest.approx([8.2804], abs=1e-3)
    assert tasks["data"][0]["y"] == ["a seg", "b depth", "b seg"]
    assert [row[0] for row in tasks["data"][0]["z"]] == pytest.approx([20, 10, -25])
    assert (tasks["data"][0]["zmin"], tasks["data"][0]["zmax"]) == pytest.approx((-25, 25))


def test_who_loses_in_every_seed_loses_for_sure(tmp_path):
    worse = [{"a": {"seg": 0.4 + 0.001 * seed}} for seed in range(3)]
    html = gain(study_of(tmp_path, {"alone": [{"a": {"seg": 0.5}}] * 3, "ours": worse}))
    assert html.count("1 of 1") == 2


def test_seeds_without_a_run_alone_do_not_count(tmp_path):
    html = gain(study_of(tmp_path, VALUES | {"alone": VALUES["alone"][:1]}))
    assert re.findall(r"<td[^>]*>(.*?)</td>", html)[:4] == ["ours", "+5.00", "–", "1"]  # noqa: RUF001


def test_nothing_without_a_run_alone_or_without_others(tmp_path):
    assert gain(study_of(tmp_path, {"ours": VALUES["ours"]})) == ""
    assert gain(study_of(tmp_path, {"alone": VALUES["alone"]})) == ""


def test_of_many_clients_groups_are_shown(tmp_path):
    many = {f"c{number}": {"seg": 0.5} for number in range(61)}
    run_set = study_of(tmp_path, {"alone": [many], "ours": [many]})
    for run in run_set.runs:
        for client in run.clients.values():
            client["group"] = "all"
    assert figures(gain(run_set))[1]["data"][0]["y"] == ["all seg"]
