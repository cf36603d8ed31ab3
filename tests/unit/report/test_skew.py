"""Measures of how unlike clients are, against closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consort.report.skew import gini, label_distance

SIZES = st.lists(st.integers(1, 1000), min_size=1, max_size=20)


def test_clients_with_the_mix_of_the_whole_have_no_distance():
    assert label_distance([{"0": 1, "1": 3}, {"0": 10, "1": 30}]) == pytest.approx(0)


@pytest.mark.parametrize("n", [2, 5, 10])
def test_clients_of_one_class_each(n):
    assert label_distance([{str(i): 7} for i in range(n)]) == pytest.approx(1 - 1 / n)


def test_the_distance_weighs_clients_alike():
    # The whole is 1/4 and 3/4: distances 3/4 and 1/4.
    assert label_distance([{"0": 10}, {"1": 30}]) == pytest.approx(0.5)


def test_clients_without_labels_do_not_count():
    assert label_distance([{"0": 1}, {}]) == 0


def test_equal_sizes_have_no_inequality():
    assert gini([5, 5, 5]) == pytest.approx(0)


def test_one_client_with_everything():
    assert gini([0, 0, 0, 8]) == pytest.approx(3 / 4)


@settings(max_examples=30, deadline=None)
@given(SIZES, st.integers(2, 9))
def test_gini_is_half_the_relative_mean_difference(sizes, factor):
    n, total = len(sizes), sum(sizes)
    by_pairs = sum(abs(a - b) for a in sizes for b in sizes) / (2 * n * total)
    assert gini(sizes) == pytest.approx(by_pairs, abs=1e-12)
    assert gini([factor * size for size in sizes]) == pytest.approx(gini(sizes), abs=1e-12)
