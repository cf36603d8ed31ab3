"""Intervals against scipy's own, closed forms and simulated coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from consort.metrics.intervals import bootstrap_over_users, clopper_pearson, rate_over_users


@given(st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=50, deadline=None)
def test_exact_intervals_are_scipys(wrong, right):
    if wrong + right:
        expected = binomtest(wrong, wrong + right).proportion_ci(0.95, method="exact")
        assert clopper_pearson(wrong, wrong + right) == pytest.approx(tuple(expected), abs=1e-9)


def test_closed_forms_of_exact_intervals():
    assert clopper_pearson(0, 100) == pytest.approx((0, 1 - 0.025 ** (1 / 100)))
    assert clopper_pearson(100, 100) == pytest.approx((0.025 ** (1 / 100), 1))
    assert clopper_pearson(0, 0) == (0, 1)
    with pytest.raises(ValueError, match="3 of 2 decisions"):
        clopper_pearson(3, 2)


def test_exact_intervals_cover_the_rate_often_enough():
    for rate in (0.01, 0.2, 0.5):
        intervals = [clopper_pearson(count, 40) for count in range(41)]
        covered = sum(
            binom.pmf(count, 40, rate)
            for count, (low, high) in enumerate(intervals)
            if low <= rate <= high
        )
        assert covered >= 0.95


def test_a_sample_decided_thrice_counts_once():
    once, thrice = clopper_pearson(4, 20), clopper_pearson(12 / 3, 60 / 3)
    assert once == thrice
    assert clopper_pearson(12, 60).high < once.high


def test_both_bootstraps_agree_and_users_make_the_interval_wider():
    generator = np.random.default_rng(0)
    totals = np.full(30, 20)
    wrong = generator.binomial(20, generator.beta(0.5, 2, size=30))  # users differ much
    fast = rate_over_users(wrong, totals, seed=4)
    users = list(zip(wrong, totals, strict=True))
    plain = bootstrap_over_users(
        users, lambda drawn: sum(w for w, _ in drawn) / sum(t for _, t in drawn), seed=4
    )
    assert fast == pytest.approx(plain)
    exact = clopper_pearson(int(wrong.sum()), int(totals.sum()))
    assert fast.high - fast.low > 1.2 * (exact.high - exact.low)
    deviation = np.std(wrong / 20) / np.sqrt(30)
    assert fast.high - fast.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)


def test_one_user_has_no_interval_over_users():
    assert rate_over_users([1], [4]) is None
    assert rate_over_users([1, 0], [4, 0]) is None
    assert bootstrap_over_users([3], sum) is None
    assert str(clopper_pearson(0, 100)) == "0.0 to 3.6 %"
