"""Operating points are those that brute force finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from consort.metrics.operating_points import RULES, fnmr_at_fmr, threshold_at_fmr, threshold_by

SCORES = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=15)


@given(SCORES, SCORES, st.sampled_from([0.0, 0.001, 0.01, 0.2, 1.0]))
def test_the_lowest_rejections_at_a_permitted_rate(genuine, forged, fmr):
    allowed = [
        sum(score < at for score in genuine) / len(genuine)
        for at in [*genuine, *forged, math.inf]
        if sum(score >= at for score in forged) / len(forged) <= fmr
    ]
    assert fnmr_at_fmr(genuine, forged, fmr) == pytest.approx(min(allowed))
    chosen = threshold_at_fmr(genuine, forged, fmr)
    assert math.isfinite(chosen)
    assert np.mean(np.array(forged) >= chosen) <= fmr
    assert np.mean(np.array(genuine) < chosen) == pytest.approx(min(allowed))


@given(SCORES, SCORES)
def test_stricter_rules_have_higher_thresholds(genuine, forged):
    _, *strict = (threshold_by(rule, genuine, forged) for rule in RULES)
    assert strict == sorted(strict)


def test_two_normal_distributions_have_rates_in_closed_form():
    grid = (np.arange(200_000) + 0.5) / 200_000
    genuine, forged = norm.ppf(grid, loc=3), norm.ppf(grid)
    for fmr in (0.01, 0.001):
        at = norm.ppf(1 - fmr)
        step = norm.pdf(at - 3) / norm.pdf(at) / len(grid)  # of one forgery more or less
        found = fnmr_at_fmr(genuine, forged, fmr)
        assert found == pytest.approx(norm.cdf(at - 3), abs=step)
    assert threshold_by("EER", genuine, forged) == pytest.approx(1.5, abs=1e-3)
    assert fnmr_at_fmr(genuine, forged, 0.0) == pytest.approx(norm.cdf(forged[-1] - 3), abs=1e-4)
