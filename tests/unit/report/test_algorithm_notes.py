"""Sections about what algorithms noted."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.report.sample import load_run, model_notes

from consort.core.row import Row
from consort.report.algorithm_notes import model_use, noted_curves, other_notes
from consort.report.run_set import RunSet


def study_of(folder, notes, seeds=(0,)):
    """Runs of algorithms, each of which noted something."""
    return RunSet.of(
        [
            load_run(folder / f"{name}-{seed}", algorithm=name, seed=seed, notes=rows(seed))
            for name, rows in notes.items()
            for seed in seeds
        ]
    )


def nothing(seed):
    return []


def lively(seed):
    return model_notes()


def stuck(seed):
    return model_notes(chosen=1)


def titles(html):
    return re.findall(r"<h3>(.*?)</h3>", html)


def folds(html):
    """Every fold with whether it is open."""
    found = re.findall(r"<details( open=\"\")?><summary>(.*?)</summary>", html)
    return [(title, bool(state)) for state, title in found]


def figures(html):
    return list(map(json.loads, re.findall(r'json">(.*?)</script>', html, re.DOTALL)))


def curve(figure):
    """The lines without their bands."""
    return {t["name"]: t for t in figure["data"] if t.get("showlegend", True)}


def test_nothing_is_drawn_where_nothing_was_noted(tmp_path):
    run_set = study_of(tmp_path, {"fedavg": nothing, "local": nothing})
    assert model_use(run_set) == other_notes(run_set) == ""


def test_the_use_of_models_in_every_run(tmp_path):
    run_set = study_of(tmp_path, {"fedavg": nothing, "few": lively, "stuck": stuck}, seeds=(0, 1))
    page = model_use(run_set)
    idle = "all clients chose model 1: the other models are not used"
    used = len({row.value for row in lively(0) if row.metric == "chosen_model" and row.round == 10})
    assert folds(page) == [
        (f"few, seed 0: {used} of 3 models in use", True),
        (f"few, seed 1: {used} of 3 models in use", False),
        (f"stuck, seed 0: {idle}", True),
        (f"stuck, seed 1: {idle}", False),
    ]
    each = ["Model of every client", "Client weight", "Model weight in round 10"]
    assert titles(page) == each * 4


def test_the_pictures_of_a_run_have_the_same_order_of_clients(tmp_path):
    run_set = study_of(tmp_path, {"few": lively})
    models, clients, weights = (f["data"][0] for f in figures(model_use(run_set)))
    last = {r.client: r.value for r in lively(0) if r.metric == "chosen_model" and r.round == 10}
    assert models["y"] == clients["y"] == weights["y"] == sorted(last, key=lambda c: (last[c], c))
    drawn = dict(zip(models["y"], [row[-1] for row in models["z"]], strict=True))
    assert drawn == last


def test_the_weights_are_those_of_the_last_round(tmp_path):
    run_set = study_of(tmp_path, {"few": lively})
    *_, figure = figures(model_use(run_set))
    (trace,) = figure["data"]
    cells = {
        (client, part): value
        for client, row in zip(trace["y"], trace["z"], strict=True)
        for part, value in zip(trace["x"], row, strict=True)
        if value is not None
    }
    assert cells == {
        (row.client, row.part): pytest.approx(row.value, rel=1e-5)
        for row in lively(0)
        if row.metric == "model_weight" and row.round == 10
    }


def test_a_run_that_noted_only_the_chosen_models(tmp_path):
    rows = [row for row in lively(0) if row.metric == "chosen_model"]
    assert titles(model_use(study_of(tmp_path, {"ifca": lambda seed: rows}))) == [
        "Model of every client"
    ]


def test_weights_without_a_choice_of_models_are_ordinary_notes(tmp_path):
    rows = [Row(1, "client_weight", 0.25, "client-10"), Row(1, "client_weight", 0.75, "client-9")]
    run_set = study_of(tmp_path, {"mgda": lambda seed: rows})
    assert model_use(run_set) == ""
    page = other_notes(run_set)
    assert folds(page) == [("mgda, seed 0: client weight", True)]
    (figure,) = figures(page)
    (trace,) = figure["data"]
    assert (trace["y"], trace["z"]) == (["client-9", "client-10"], [[0.75], [0.25]])


def test_what_is_noted_once_a_round_is_a_curve(tmp_path):
    run_set = study_of(tmp_path, {"fedavg": nothing, "few": lively})
    (figure,) = figures(other_notes(run_set))
    assert titles(other_notes(run_set)) == ["Objective"]
    (trace,) = figure["data"]
    assert trace["name"] == "few"
    assert trace["line"]["color"] == run_set.colours["few"]
    wanted = {row.round: row.value for row in lively(0) if row.metric == "objective"}
    assert trace["x"] == list(wanted)
    assert trace["y"] == [pytest.approx(value, rel=1e-5) for value in wanted.values()]


def test_seeds_are_averaged_with_their_deviation(tmp_path):
    def rows(seed):
        return [Row(r, "objective", 10.0 * r + 2 * seed) for r in (1, 2)]

    run_set = study_of(tmp_path, {"few": rows, "fedavg": nothing}, seeds=(0, 1))
    figure = noted_curves(run_set, "objective")
    low, high, mean = (trace["y"] for trace in figure["data"])
    assert mean == [11, 21]
    assert low == [pytest.approx(mean_ - 2**0.5) for mean_ in mean]
    assert high == [pytest.approx(mean_ + 2**0.5) for mean_ in mean]
    assert "means over seeds" in other_notes(run_set)


def test_a_seed_that_noted_nothing_yet_does_not_count(tmp_path):
    def rows(seed):
        return [Row(1, "objective", 5.0)] if seed == 0 else []

    figure = noted_curves(study_of(tmp_path, {"few": rows}, seeds=(0, 1)), "objective")
    (trace,) = figure["data"]
    assert trace["y"] == [5]


def parts(seed):
    return [Row(r, "task_weight", r / 10 + (t == "depth"), part=t)
            for r in (1, 2) for t in ("shape", "depth")]  # fmt: skip


def test_parts_have_curves_of_their_own(tmp_path):
    run_set = study_of(tmp_path, {"mgda": parts, "fedavg": nothing})
    drawn = curve(noted_curves(run_set, "task_weight"))
    assert {name: t["y"] for name, t in drawn.items()} == {
        "mgda, depth": [1.1, 1.2],
        "mgda, shape": [0.1, 0.2],
    }
    assert len({t["line"]["dash"] for t in drawn.values()}) == 2
    assert {t["line"]["color"] for t in drawn.values()} == {run_set.colours["mgda"]}


def test_parts_of_a_single_algorithm_have_colours_of_their_own(tmp_path):
    drawn = curve(noted_curves(study_of(tmp_path, {"mgda": parts}), "task_weight"))
    assert list(drawn) == ["depth", "shape"]
    assert len({t["line"]["color"] for t in drawn.values()}) == 2


def test_a_number_may_be_noted_for_the_round_and_for_its_clients(tmp_path):
    rows = [
        Row(1, "pull", 3.0),
        Row(1, "pull", 1.0, "client-0"),
        Row(1, "pull", 4.0, "client-0", part="heads"),
        Row(2, "pull", 5.0, "client-1", part="heads"),
    ]
    page = other_notes(study_of(tmp_path, {"mine": lambda seed: rows}))
    assert titles(page) == ["Pull", "Pull", "Pull in round 2"]
    line, over_time, last = (figure["data"][0] for figure in figures(page))
    assert line["y"] == [3]
    assert over_time["z"] == [[1], [None]]
    assert (last["y"], last["z"]) == (["client-0", "client-1"], [[None], [5]])
