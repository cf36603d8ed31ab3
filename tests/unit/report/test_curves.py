"""Learning curves and distributions over clients."""

from __future__ import annotations

import pytest
from tests.unit.report.sample import TASKS, load_run

from consort.report.curves import band_meaning, client_spread, curves
from consort.report.run_set import RunSet


def lines(figure):
    return {trace["name"]: trace for trace in figure["data"] if trace.get("showlegend", True)}


def bands(figure):
    return [trace for trace in figure["data"] if not trace.get("showlegend", True)]


@pytest.fixture
def one(tmp_path):
    return load_run(tmp_path / "one", algorithm="ditto", models=("personal", "global"))


@pytest.fixture
def several(tmp_path):
    return [
        load_run(tmp_path / f"{name}-{seed}", algorithm=name, seed=seed, models=models)
        for name, models in (("fedavg", ("global",)), ("ditto", ("personal", "global")))
        for seed in (0, 1)
    ]


def test_one_run_shows_every_model_and_the_middle_half_of_its_clients(one):
    run_set = RunSet.of([one])
    figure = curves(run_set, "shape", "accuracy", "test")
    drawn = lines(figure)
    assert list(drawn) == ["personal model", "global model"]
    assert all(trace["visible"] is True for trace in figure["data"])
    points = one.curve("shape", "accuracy", "test", "personal")
    assert drawn["personal model"]["x"] == list(range(1, 11))
    assert drawn["personal model"]["y"] == [p.mean for p in points]
    assert [band["y"] for band in bands(figure)[:2]] == [
        [p.low for p in points],
        [p.high for p in points],
    ]
    assert figure["layout"]["shapes"][0]["x0"] == one.best_round
    assert "middle half" in band_meaning(run_set)


def test_axes_are_labelled(one):
    layout = curves(RunSet.of([one]), "depth", "rmse", "validation")["layout"]
    assert layout["xaxis"]["title"]["text"] == "round"
    assert layout["yaxis"]["title"]["text"] == "rmse"


def test_there_are_no_half_rounds(one, tmp_path):
    long = load_run(tmp_path / "long", rounds=11)
    for run, ticks in ((one, 1), (long, None)):
        axis = curves(RunSet.of([run]), "shape", "accuracy", "test")["layout"]["xaxis"]
        assert axis.get("dtick") == ticks


def test_several_seeds_are_averaged_with_their_deviation(several):
    run_set = RunSet.of(several)
    figure = curves(run_set, "shape", "accuracy", "test")
    means = [run.curve("shape")[-1].mean for run in several[:2]]
    centre, half = sum(means) / 2, abs(means[0] - means[1]) / 2**0.5
    low, high = (band["y"][-1] for band in bands(figure)[:2])
    assert lines(figure)["fedavg"]["y"][-1] == pytest.approx(centre)
    assert (low, high) == (pytest.approx(centre - half), pytest.approx(centre + half))
    assert "standard deviation" in band_meaning(run_set)


def test_a_comparison_folds_away_the_models_that_are_not_reported(several):
    drawn = lines(curves(RunSet.of(several), "shape", "accuracy", "test"))
    assert {name: trace["visible"] for name, trace in drawn.items()} == {
        "fedavg": True,
        "ditto": True,
        "ditto, global": "legendonly",
    }


def test_an_algorithm_has_one_colour_in_all_pictures(several):
    run_set = RunSet.of(several)
    drawn = lines(curves(run_set, "shape", "accuracy", "test"))
    boxes = {box["name"]: box for box in client_spread(run_set, "shape")["data"]}
    for name in ("fedavg", "ditto"):
        assert drawn[name]["line"]["color"] == boxes[name]["line"]["color"] == run_set.colours[name]
    assert run_set.colours["fedavg"] != run_set.colours["ditto"]


def test_seeds_of_different_length_share_their_common_rounds(tmp_path):
    runs = [load_run(tmp_path / f"{n}", seed=n, rounds=n) for n in (3, 5)]
    figure = curves(RunSet.of(runs), "shape", "accuracy", "test")
    assert lines(figure)["global model"]["x"] == [1, 2, 3]


def test_single_runs_side_by_side_have_no_band(tmp_path):
    runs = [load_run(tmp_path / name, algorithm=name) for name in ("a", "b")]
    run_set = RunSet.of(runs)
    assert bands(curves(run_set, "shape", "accuracy", "test")) == []
    assert band_meaning(run_set) == "Lines are means over clients."


def test_every_client_is_a_point(one):
    (box,) = client_spread(RunSet.of([one]), "shape")["data"]
    assert dict(zip(box["text"], box["x"], strict=True)) == one.clients_at(10, "shape")
    assert box["boxpoints"] == "all"


def test_many_clients_are_a_box(tmp_path):
    run = load_run(tmp_path / "run", clients=61, rounds=1, tasks={"shape": TASKS["shape"]})
    (box,) = client_spread(RunSet.of([run]), "shape")["data"]
    assert box["boxpoints"] == "outliers"
    assert len(box["x"]) == 61
