"""Plots of heterogeneity show where clients differ."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers import tiny_federation
from tests.unit.cli.command import consort

from consort.report.heterogeneity import distances, neighbour_map, pictures


def held(count=12):
    """Two clients with the same kind of pictures, and one with brighter ones."""
    rng = np.random.default_rng(1)
    levels = {"a": 0.2, "b": 0.2, "c": 0.7}
    return {name: level + 0.05 * rng.random((count, 64)) for name, level in levels.items()}


def test_distances_tell_who_is_unlike():
    found = distances(held())
    assert found == pytest.approx(found.T)
    assert found[0, 1] < 0.05 < found[0, 2]
    assert found.diagonal().max() < 0.05


def test_every_picture_is_a_point_in_the_colour_of_its_client():
    traces = neighbour_map(held(5))["data"]
    assert [trace["name"] for trace in traces] == ["a", "b", "c"]
    assert [len(trace["x"]) for trace in traces] == [5, 5, 5]
    assert len({trace["marker"]["color"] for trace in traces}) == 3


def test_vectors_have_no_pictures():
    assert pictures(tiny_federation(3)) is None


def test_the_command_shows_them_if_asked(tmp_path):
    recipe = tmp_path / "pictures.toml"
    recipe.write_text(
        'clients = 2\n[data]\nname = "synthetic_images"\nclasses = 2\nper_class = 10\nsize = 16\n'
        '[model]\nname = "cnn4"\nscale = 0.05\n[algorithms.fedavg]\n'
    )
    page = tmp_path / "page.html"
    for asked in ([], ["--pictures"]):
        assert consort("inspect", recipe, "--out", page, "--quiet", *asked).code == 0
        assert ("<h3>Distances between clients</h3>" in page.read_text()) is bool(asked)
