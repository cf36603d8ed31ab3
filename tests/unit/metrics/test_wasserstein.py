"""Distances between samples, against scipy and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.metrics.wasserstein import random_directions, sliced_wasserstein, wasserstein

samples = st.lists(st.integers(-50, 50), min_size=1, max_size=12)


@settings(max_examples=50)
@given(samples, samples)
def test_it_agrees_with_scipy(one, other):
    from scipy.stats import wasserstein_distance

    columns = (np.array(part, dtype=float)[:, None] for part in (one, other))
    assert wasserstein(*columns)[0] == pytest.approx(wasserstein_distance(one, other))


def test_a_shift_costs_its_length_along_every_direction():
    rng = np.random.default_rng(0)
    points, shift = rng.standard_normal((30, 5)), np.array([1.0, 0, -2, 0, 0.5])
    directions = random_directions(20, 5, rng)
    assert np.linalg.norm(directions, axis=1) == pytest.approx(np.ones(20))
    moved = sliced_wasserstein(points, points[::-1] + shift, directions)
    assert moved == pytest.approx(np.abs(directions @ shift).mean())
    assert sliced_wasserstein(points, points[::-1], directions) == pytest.approx(0)
