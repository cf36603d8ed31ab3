"""Heat maps of numbers recorded per client."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import quantiles

import pytest

from consort.report.assignment import Assignment
from consort.report.drawing import colour
from consort.report.heatmaps import choices, client_map, part_map, thinned

CROWD = [f"c{number}" for number in range(61)]


def test_the_model_of_every_client():
    rounds = {2: {"a": "0", "b": "7"}, 4: {"a": "3", "b": "0", "c": "0"}}
    figure = choices(Assignment(rounds, ["0", "3", "7"]))
    (trace,) = figure["data"]
    assert trace["x"] == [2, 4]
    assert trace["y"] == ["b", "c", "a"]
    assert trace["z"] == [[2, 0], [None, 0], [0, 1]]
    assert trace["text"] == [["7", "0"], ["", "0"], ["0", "3"]]
    assert trace["colorbar"]["ticktext"] == ["model 0", "model 3", "model 7"]
    assert trace["texttemplate"] == "%{text}"
    assert figure["layout"]["xaxis"]["title"]["text"] == "round"


def test_every_model_has_its_colour_all_over_its_step():
    (trace,) = choices(Assignment({1: {"a": "0"}}, ["0", "1", "2", "3"]))["data"]
    assert (trace["zmin"], trace["zmax"]) == (-0.5, 3.5)
    assert trace["colorscale"] == [
        (0, colour(0)), (0.25, colour(0)), (0.25, colour(1)), (0.5, colour(1)),
        (0.5, colour(2)), (0.75, colour(2)), (0.75, colour(3)), (1, colour(3)),
    ]  # fmt: skip


def test_many_rounds_leave_no_room_for_digits():
    (trace,) = choices(Assignment({r: {"a": "0"} for r in range(1, 14)}, ["0"]))["data"]
    assert "texttemplate" not in trace


def test_the_models_of_many_clients_are_counted():
    rounds = {1: dict.fromkeys(CROWD, "0"), 2: {c: str(int(c == "c5")) for c in CROWD}}
    figure = choices(Assignment(rounds, ["0", "1", "2"]))
    assert {trace["name"]: trace["y"] for trace in figure["data"]} == {
        "model 0": [61, 60],
        "model 1": [0, 1],
        "model 2": [0, 0],
    }
    assert figure["data"][0]["x"] == [1, 2]
    assert figure["layout"]["barmode"] == "stack"


def test_a_number_of_every_client_over_the_rounds():
    noted = {1: {"a": 0.25, "b": 0.75}, 2: {"b": 0.5}, 3: {"a": math.inf}}
    (trace,) = client_map(noted, ["b", "a"], "client weight")["data"]
    assert trace["x"] == [1, 2, 3]
    assert trace["y"] == ["b", "a"]
    (b, a) = trace["z"]
    assert b[:2] == [0.75, 0.5]
    assert a[0] == 0.25
    assert math.isnan(b[2])
    assert math.isnan(a[1])
    assert (trace["zmin"], trace["zmax"]) == (0, 0.75)


def test_colours_reach_below_zero_where_numbers_do():
    (trace,) = client_map({1: {"a": -3.0, "b": 2.0}}, ["a", "b"], "pull")["data"]
    assert (trace["zmin"], trace["zmax"]) == (-3, 2)


def test_a_number_of_many_clients_is_a_spread():
    noted = {r: {c: r * place for place, c in enumerate(CROWD)} for r in (1, 2)}
    noted[2]["c60"] = math.nan
    traces = client_map(noted, CROWD, "client weight")["data"]
    drawn = {trace["name"]: trace["y"] for trace in traces if trace.get("showlegend", True)}
    assert drawn["lowest client"] == [0, 0]
    assert drawn["median client"] == [30, 59]
    assert drawn["highest client"] == [60, 118]
    low, high = (trace["y"] for trace in traces if not trace.get("showlegend", True))
    assert [low[0], high[0]] == [15, 45]


def test_parts_of_one_round():
    noted = {
        "10": {1: {"a": 9.0}, 2: {"a": 0.25}},
        "2": {2: {"a": 0.75, "b": 1.0}},
        "gone": {1: {"a": 1.0}},
    }
    figure = part_map(noted, 2, ["b", "a"], "model weight", "model")
    (trace,) = figure["data"]
    assert trace["x"] == ["2", "10"]
    assert trace["y"] == ["b", "a"]
    assert trace["z"][1] == [0.75, 0.25]
    assert trace["z"][0][0] == 1.0
    assert math.isnan(trace["z"][0][1])
    assert trace["zmax"] == 1
    assert "texttemplate" in trace
    assert figure["layout"]["xaxis"]["title"]["text"] == "model"


def test_many_parts_leave_no_room_for_numbers():
    noted = {str(part): {1: {"a": 0.5}} for part in range(7)}
    (trace,) = part_map(noted, 1, ["a"], "model weight")["data"]
    assert "texttemplate" not in trace


def test_parts_of_many_clients_are_boxes():
    values = [place**2 / 7 for place in range(61)]
    noted = {"0": {1: dict(zip(CROWD, values, strict=True))}, "1": {1: {"c0": 4.0}}}
    (trace,) = part_map(noted, 1, CROWD, "model weight")["data"]
    five = [trace[key] for key in ("lowerfence", "q1", "median", "q3", "upperfence")]
    assert [bound[0] for bound in five] == [
        0, *quantiles(values, n=4, method="inclusive"), values[-1],
    ]  # fmt: skip
    assert [bound[1] for bound in five] == [4.0] * 5
    assert trace["x"] == ["0", "1"]


@pytest.mark.parametrize(("rounds", "columns"), [(1, 1), (100, 100), (101, 100), (1000, 100)])
def test_so_many_rounds_as_can_be_seen(rounds, columns):
    shown = thinned(range(rounds, 0, -1))
    assert len(set(shown)) == columns
    assert shown == sorted(shown)
    assert (shown[0], shown[-1]) == (1, rounds)
    gaps = {b - a for a, b in pairwise(shown)}
    assert not gaps or max(gaps) - min(gaps) <= 1
