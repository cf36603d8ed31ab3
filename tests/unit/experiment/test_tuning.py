"""Tuning: choice by validation alone, seeds the search never saw, runs side by side."""

from __future__ import annotations

import csv
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from io import StringIO

import pytest
from tests.unit.cli.command import RECIPE, TIMING, consort

from consort.errors import Failure, UsageError
from consort.experiment.jobs import TuningJob, make, opened
from consort.experiment.loading import load_recipe
from consort.experiment.suggestions import suggestions
from consort.experiment.sweep import Range, Sweep
from consort.experiment.trials import Trial, best_of, fronts, trials_table
from consort.experiment.tuning import Search, with_points
from consort.results.pareto import front
from consort.results.result import Result
from consort.results.summary import Summary
from consort.run.history import History

SWEEP = """
[sweep]
seeds = [5, 6]
[sweep.space]
local.lr = [0.001, 0.5]
"""


class InProcess:
    """Makes runs here, one after the other, and counts them."""

    def __init__(self) -> None:
        self.made: list[TuningJob] = []

    def run(self, jobs):
        for job in jobs:
            self.made.append(job)
            yield make(job)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE + SWEEP)
    return path


@pytest.fixture
def search(recipe, tmp_path):
    return Search(load_recipe(recipe), tmp_path / "out", None, InProcess())


def scored(score: float, cost: float = 1.0, name: str = "a", **point: float) -> Trial:
    return Trial(name, point or {"x": score}, Summary(score, 0.0, 1), cost, cost)


def test_every_algorithm_has_the_same_budget_and_only_the_seeds_of_the_search(search):
    best = search.go()
    jobs = search.jobs.made
    assert [(job["algorithm"], job["seed"]) for job in jobs] == [
        (name, seed) for name in ("fedavg", "ditto") for _ in range(2) for seed in (5, 6)
    ]
    assert set(best) == {"fedavg", "ditto"}


def test_validation_decides_and_test_data_do_not(search, monkeypatch):
    asked = []
    original = Result.over_last_rounds

    def noted(self, metric, split="test", model=""):
        asked.append(split)
        return original(self, metric, split, model)

    monkeypatch.setattr(Result, "over_last_rounds", noted)
    best = search.go()
    assert set(asked) == {"validation"}
    for trial in best.values():
        rivals = [t.validation.mean for t in search.trials if t.algorithm == trial.algorithm]
        assert trial.validation.mean == max(rivals)


def test_what_was_tried_is_in_the_folder(search, tmp_path):
    search.go()
    rows = list(csv.DictReader(StringIO((tmp_path / "out" / "trials.csv").read_text())))
    assert [(row["algorithm"], row["local.lr"]) for row in rows] == [
        ("fedavg", "0.001"), ("fedavg", "0.5"), ("ditto", "0.001"), ("ditto", "0.5"),
    ]  # fmt: skip
    assert all(float(row["bytes"]) > 0 and row["seeds"] == "2" for row in rows)
    folder = tmp_path / "out" / "search" / "fedavg" / rows[1]["trial"] / "seed-5"
    about = json.loads((folder / "run.json").read_text())
    assert about["recipe"]["algorithms"]["fedavg"]["local"]["lr"] == 0.5
    assert about["recipe"]["sweep"] is None


def test_repeating_it_trains_nothing(search, recipe, tmp_path):
    first = search.go()
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("history.jsonl")}
    again = Search(load_recipe(recipe), tmp_path / "out", None, InProcess()).go()
    assert again == first
    assert times == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("history.jsonl")}


def test_a_wrong_option_is_refused_before_anything_runs(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE + SWEEP + "[sweep.algorithms.ditto]\nstrenth = [1.0]\n")
    search = Search(load_recipe(path), tmp_path / "out", None, InProcess())
    with pytest.raises(UsageError, match="did you mean 'strength'"):
        search.go()
    assert not search.jobs.made


def test_a_setting_that_fails_is_noted_and_not_chosen(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE + SWEEP.replace("[0.001, 0.5]", "[1e30, 0.5]"))
    search = Search(load_recipe(path), tmp_path / "out", None, InProcess())
    best = search.go()
    failed = [trial for trial in search.trials if trial.error]
    assert {trial.point["local.lr"] for trial in failed} == {1e30}
    assert all(trial.point["local.lr"] == 0.5 for trial in best.values())
    assert "1e+30" in (tmp_path / "out" / "trials.csv").read_text()


def test_if_all_fail_the_first_reason_is_told():
    with pytest.raises(Failure, match="a: all settings failed, the first: too warm"):
        best_of([Trial("a", {}, error="too warm"), Trial("a", {}, error="too cold")], True)


def test_the_first_of_equals_is_chosen_and_less_may_be_better():
    trials = [scored(0.5, x=1), scored(0.7, x=2), scored(0.7, x=3), Trial("a", {}, error="x")]
    assert best_of(trials, True) is trials[1]
    assert best_of(trials, False) is trials[0]


def test_the_metric_must_be_clear(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE + SWEEP.replace("seeds", 'metric = "acuracy"\nseeds'))
    with pytest.raises(UsageError, match=r"sweep\.metric: no metric 'acuracy': did you mean 'acc"):
        Search(load_recipe(path), tmp_path / "out", None, InProcess()).go()


def test_a_recipe_without_a_sweep_is_not_tuned(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    shown = consort("tune", path, "--out", tmp_path / "out")
    assert (shown.code, "has no table [sweep]" in shown.error) == (2, True)


def test_the_best_settings_go_into_the_recipe(recipe):
    tuned = with_points(load_recipe(recipe), {"ditto": {"local.lr": 0.25, "strength": 2.0}})
    assert tuned.algorithm("ditto").local.lr == 0.25
    assert tuned.algorithm("ditto").strength == 2.0
    assert tuned.algorithm("fedavg").local.lr == 0.1
    assert tuned.sweep is None


def test_optuna_does_not_depend_on_anything_but_its_seed():
    pytest.importorskip("optuna")
    space = {"lr": Range(1e-3, 1.0, log=True), "n": Range(1, 9, whole=True), "kind": ["a", "b"]}
    sweep = Sweep(space, method="optuna", trials=14)

    def searched() -> list[dict]:
        batches, found, answer = suggestions(sweep, "fedavg", 14, True), [], None
        while True:
            try:
                points = batches.send(answer)
            except StopIteration:
                return found
            found += points
            answer = [-abs(math.log10(point["lr"]) + 1) for point in points]
            answer[0] = math.nan  # one fails

    first = searched()
    assert first == searched()
    assert len(first) == 14
    assert all(1e-3 <= point["lr"] <= 1 and point["n"] in range(1, 10) for point in first)


def test_without_optuna_the_way_out_is_told(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install 'fedconsort\[optuna\]'"):
        next(suggestions(Sweep(method="optuna", trials=2), "fedavg", 2, True))


@pytest.mark.parametrize(("points", "expected"), [
    ([], []),
    ([(1, 1)], [0]),
    ([(2, 1), (1, 2)], [1]),  # the second is cheaper and better
    ([(3, 3), (1, 1), (2, 2)], [1, 2, 0]),
    ([(1, 1), (1, 2), (2, 2), (2, 3)], [1, 3]),
    ([(1, 1), (1, 1)], [0]),
    ([(math.nan, 9), (1, math.nan), (5, 1)], [2]),
])  # fmt: skip
def test_pareto_by_hand(points, expected):
    assert front(points) == expected


def test_fronts_of_trials():
    cheap, good, bad = scored(0.5, 1.0), scored(0.9, 5.0), scored(0.4, 3.0)
    assert fronts([bad, good, cheap, Trial("a", {}, error="x")], True) == {
        "bytes": [cheap, good], "seconds": [cheap, good],
    }  # fmt: skip
    assert fronts([bad, good, cheap], False)["bytes"] == [cheap, bad]
    rows = csv.DictReader(StringIO(trials_table([bad, good, cheap], "accuracy")))
    assert [row["pareto"] for row in rows] == ["", "bytes seconds", "bytes seconds"]


def test_failed_trials_have_empty_cells():
    (row,) = csv.DictReader(StringIO(trials_table([Trial("a", {"x": 1}, error="why")], "accuracy")))
    assert (row["validation_accuracy"], row["bytes"], row["error"]) == ("", "", "why")


def test_the_command_confirms_with_new_seeds_side_by_side(recipe, tmp_path):
    out = tmp_path / "out"
    shown = consort("tune", recipe, "--jobs", "2", "--out", out)
    assert shown.code == 0, shown.err
    assert "tiny (1 seed, test data)" in shown.out
    assert sorted(p.name for p in out.iterdir()) == [
        "final", "report.html", "search", "trials.csv", "tuned.json", "tuning.html",
    ]  # fmt: skip
    tuned = json.loads((out / "tuned.json").read_text())["algorithms"]
    for name in ("fedavg", "ditto"):
        final = Result.load(out / "final" / name / "seed-0")
        lr = final.about["recipe"]["algorithms"][name]["local"]["lr"]
        assert lr == tuned[name]["local"]["lr"]
        straight = ["--algorithm", name, "--set", f"algorithms.{name}.local.lr={lr}", "--quiet"]
        consort("run", recipe, *straight, "--out", tmp_path / "straight")
        rows, others = (
            [row for row in History(folder / name / "seed-0" / "history.jsonl")
             if row.metric not in TIMING]
            for folder in (out / "final", tmp_path / "straight")
        )  # fmt: skip
        assert rows == others
    assert (out / "tuning.html").read_text().count('class="plot"') == 2


def test_a_process_that_dies_is_told_and_nothing_hangs(recipe, tmp_path):
    loaded = load_recipe(recipe)
    job = TuningJob(
        recipe=loaded.table, algorithm="fedavg", seed=0, folder=str(tmp_path / "a"), data=None
    )
    with opened(1) as jobs:
        assert list(jobs.run([job])) == [""]
        next(iter(jobs._processes.values())).kill()
        with pytest.raises(Failure, match="the process that made this run died"):
            list(jobs.run([job, job, job]))


def test_errors_of_a_run_are_answers(recipe, tmp_path):
    loaded = load_recipe(recipe)
    job = TuningJob(
        recipe=loaded.table, algorithm="fedavgg", seed=0, folder=str(tmp_path), data=None
    )
    assert "did you mean 'fedavg'" in make(job)


def test_a_search_that_is_interrupted_ends_its_processes(recipe, tmp_path):
    table = with_points(load_recipe(recipe), {}).table
    table["run"]["rounds"] = 100_000
    jobs = [TuningJob(recipe=table, algorithm="fedavg", seed=seed, folder=str(tmp_path / str(seed)),
                data=None) for seed in range(3)]  # fmt: skip
    with opened(2) as processes:
        answers = processes.run(jobs)
        timer = threading.Timer(1.0, lambda: next(iter(processes._processes.values())).kill())
        timer.start()
        with pytest.raises(Failure):
            next(answers)
        timer.join()
        assert not processes._processes
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_no_process_behind(recipe, tmp_path, sent):
    code = "from consort.cli import main; main()"
    settings = ["--set", "run.rounds=100000", "--jobs", "2", "--out", str(tmp_path / "out")]
    process = subprocess.Popen(
        [sys.executable, "-c", code, "tune", str(recipe), *settings],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    while len(list(tmp_path.glob("out/search/*/*/*/history.jsonl"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    if sent == signal.SIGKILL:
        process.kill()
    else:
        os.killpg(process.pid, sent)  # as a terminal or a batch system does
    assert process.wait(30) != 0
    deadline = time.monotonic() + 10
    while alive(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(group: int) -> bool:
    """Whether a process of this group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
