"""Pictures of how unlike clients are show what is unlike."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers import tiny_federation

from consort.report.unlike import distances, neighbour_map, pictures


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
