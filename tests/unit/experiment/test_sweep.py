"""The table `sweep`: what is tried, with equal budgets, and what is refused."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.command import RECIPE

from consort.errors import UsageError
from consort.experiment.loading import load_recipe
from consort.experiment.sweep import Range, Sweep, nested

NAMES = {"fedavg": {}, "ditto": {}}


def loaded(tmp_path, text):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE + text)
    return load_recipe(path).sweep


def test_a_grid_gives_every_algorithm_as_many_settings(tmp_path):
    sweep = loaded(
        tmp_path,
        """
[sweep.space]
local.lr = [0.1, 0.2, 0.3]
"local.momentum" = [0.0, 0.9]
[sweep.algorithms.ditto]
strength = [0.1, 1.0, 10.0]
""",
    )
    budget = sweep.budget(NAMES)
    assert budget == 6  # fedavg has 3 · 2, ditto 18
    assert [p["local.lr"] for p in sweep.points("fedavg", budget)] == [0.1, 0.1, 0.2, 0.2, 0.3, 0.3]
    points = sweep.points("ditto", budget)
    assert len({tuple(point.items()) for point in points}) == 6
    assert all(set(point) == {"local.lr", "local.momentum", "strength"} for point in points)
    assert points == sweep.points("ditto", budget)


def test_random_settings_lie_in_their_ranges():
    space = {"lr": Range(1e-4, 1.0, log=True), "n": Range(2, 5, whole=True), "kind": ["a", "b"]}
    sweep = Sweep(space, method="random", trials=40)
    points = sweep.points("fedavg", 40)
    assert len(points) == 40
    assert all(1e-4 <= point["lr"] <= 1 for point in points)
    assert sum(point["lr"] < 0.01 for point in points) > 10  # half of them on a logarithmic scale
    assert {point["n"] for point in points} == {2, 3, 4, 5}
    assert points != Sweep(space, method="random", trials=40, seed=1).points("fedavg", 40)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.randoms(use_true_random=False))
def test_a_range_draws_between_its_bounds(low, width, generator: random.Random):
    drawn = Range(low, low + width).draw(generator)
    slack = 1e-5 * max(abs(low), abs(low + width))
    assert low - slack <= drawn <= low + width + slack


@pytest.mark.parametrize(("text", "words"), [
    ("[sweep]\nseeds = [0, 7]", "0 would be searched and reported"),
    ("[sweep]\nseeds = []", "give at least one"),
    ("[sweep.algorithms.dito]\nstrength = [1.0]", "did you mean 'ditto'"),
    ("[sweep]\ntrials = 3\n[sweep.space]\nlocal.lr = [0.1, 0.2]", "has only 2 settings"),
    ("[sweep.space]\nlocal.lr = { low = 0.1, high = 1.0 }", "a grid needs a list of values"),
    ("[sweep.space]\nlocal.lr = []", "give at least one value"),
    ('[sweep]\nmethod = "random"', "needs a number of trials"),
    ('[sweep]\nmethod = "bayes"', "sweep.method"),
    ("[sweep.space]\nlocal.lr = { low = 1.0, high = 0.1 }", "give low < high"),
    ("[sweep.space]\nlocal.lr = { low = 0.0, high = 0.1, log = true }", "low > 0"),
])  # fmt: skip
def test_what_is_wrong_is_told_with_its_key(tmp_path, text, words):
    with pytest.raises(UsageError) as error:
        loaded(tmp_path, text)
    assert words in str(error.value)
    assert "tiny.toml" in str(error.value)


def test_settings_become_tables():
    assert nested({"local.lr": 0.1, "local.momentum": 0.9, "strength": 1}) == {
        "local": {"lr": 0.1, "momentum": 0.9}, "strength": 1,
    }  # fmt: skip


def test_corners_have_every_value_and_every_bound():
    sweep = Sweep({"a": [1, 2, 3], "b": Range(0.1, 2.5), "c": Range(1, 4, whole=True)})
    corners = sweep.corners("fedavg")
    assert {point["a"] for point in corners} == {1, 2, 3}
    assert {point["b"] for point in corners} == {0.1, 2.5}
    assert {point["c"] for point in corners} == {1, 4}
