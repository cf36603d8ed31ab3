"""The clients of every algorithm side by side."""

from __future__ import annotations

import math

import pytest
from tests.unit.report.sample import TASKS, load_run

from consort.core.row import Row
from consort.report.client_strip import client_means, client_strip, strip_meaning
from consort.report.run_set import RunSet

SHAPE = {"shape": TASKS["shape"]}


def columns(figure):
    return [trace for trace in figure["data"] if "name" in trace]


def rings(figure):
    return [trace for trace in figure["data"] if "name" not in trace]


@pytest.fixture
def run_set(tmp_path):
    return RunSet.of(
        [
            load_run(tmp_path / f"{name}-{seed}", algorithm=name, seed=seed, clients=12)
            for name in ("fedavg", "ditto")
            for seed in (0, 1)
        ]
    )


def test_means_over_seeds(run_set):
    runs = run_set.groups["ditto"]
    one, two = (run.clients_at(10, "shape") for run in runs)
    means = client_means(runs, "shape")
    assert list(means) == [f"client-{number}" for number in range(12)]
    assert means == {name: pytest.approx((one[name] + two[name]) / 2) for name in one}


def test_a_dot_per_client_in_the_column_of_its_algorithm(run_set):
    figure = client_strip(run_set, "shape")
    fedavg, ditto = columns(figure)
    means = client_means(run_set.groups["ditto"], "shape")
    assert dict(zip(ditto["text"], ditto["y"], strict=True)) == means
    assert all(-0.5 < x < 0.5 for x in fedavg["x"])
    assert ditto["x"] == [pytest.approx(x + 1) for x in fedavg["x"]]
    assert len(set(fedavg["x"])) == 12
    axis = figure["layout"]["xaxis"]
    assert dict(zip(axis["tickvals"], axis["ticktext"], strict=True)) == {0: "fedavg", 1: "ditto"}
    assert fedavg["marker"]["color"] == run_set.colours["fedavg"]


@pytest.mark.parametrize(("task", "worst"), [("shape", min), ("depth", max)])
def test_the_worst_client_is_ringed_and_named(run_set, task, worst):
    for ring, column in zip(
        rings(client_strip(run_set, task)), columns(client_strip(run_set, task)), strict=True
    ):
        place = column["y"].index(worst(column["y"]))
        assert ring["text"] == [column["text"][place]]
        assert (ring["x"], ring["y"]) == ([column["x"][place]], [column["y"][place]])


@pytest.mark.parametrize(
    ("values", "ringed"),
    [((0.5, math.nan, 0.25), [["client-2"]]), ((math.nan, math.nan, math.inf), [])],
)
def test_a_client_that_diverged_is_not_ringed(tmp_path, values, ringed):
    scores = [
        Row(1, "accuracy", value, f"client-{number}", "shape", "test", "global", n=9)
        for number, value in enumerate(values)
    ]
    run = load_run(tmp_path / "run", clients=3, rounds=1, tasks=SHAPE, notes=scores)
    figure = client_strip(RunSet.of([run]), "shape")
    assert [ring["text"] for ring in rings(figure)] == ringed
    (column,) = columns(figure)
    assert repr(column["y"]) == repr(list(values))


def test_more_clients_than_dots_are_a_box(tmp_path):
    runs = [
        load_run(tmp_path / name, algorithm=name, clients=201, rounds=1, tasks=SHAPE)
        for name in ("a", "b")
    ]
    run_set = RunSet.of(runs)
    figure = client_strip(run_set, "shape")
    values = runs[1].clients_at(1, "shape")
    box, ring = columns(figure)[1], rings(figure)[1]
    assert (box["type"], box["x"]) == ("box", [1])
    lowest, highest = min(values.values()), max(values.values())
    assert (box["lowerfence"], box["upperfence"]) == ([lowest], [highest])
    assert (ring["x"], ring["y"]) == ([1], [lowest])
    assert values[ring["text"][0]] == ring["y"][0]
    assert "distribution over clients;" in strip_meaning(run_set)


def test_how_to_read_it(run_set, tmp_path):
    assert strip_meaning(run_set).startswith("Each dot is a client (mean over seeds),")
    single = RunSet.of([load_run(tmp_path / name, algorithm=name) for name in ("a", "b")])
    assert strip_meaning(single).startswith("Each dot is a client,")
