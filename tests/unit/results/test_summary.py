"""Summaries against closed forms, intervals against scipy."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from consort.results.summary import (
    Spread,
    Summary,
    confidence_interval,
    format_summary,
    spread,
    summarise,
)

values_of_seeds = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8)


def test_summary_uses_the_sample_deviation():
    assert summarise([1.0, 2.0, 3.0, 4.0]) == Summary(2.5, math.sqrt(5 / 3), 4)


def test_one_seed_has_no_deviation():
    assert summarise([0.7]) == Summary(0.7, 0.0, 1)


def test_equal_values_have_exactly_their_mean_and_no_deviation():
    assert summarise([0.1, 0.1, 0.1]) == Summary(0.1, 0.0, 3)


def test_summary_of_whole_numbers_is_a_float():
    assert isinstance(summarise([1, 3]).mean, float)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_diverged_seed_is_shown_not_hidden(broken):
    summary = summarise([0.5, broken])
    assert str(summary.mean) == str(broken)
    assert math.isnan(summary.std)


def test_nothing_has_no_summary():
    with pytest.raises(ValueError, match="at least one"):
        summarise([])


def test_spread_over_clients():
    measured = spread([0.2, 0.4, 0.9], [10, 10, 80])
    assert measured == Spread(
        mean=0.5,
        std=pytest.approx(math.sqrt(0.26 / 3)),
        min=0.2,
        max=0.9,
        weighted=pytest.approx(0.78),
    )


def test_spread_of_one_client_is_a_point():
    assert spread([0.25], [8]) == Spread(0.25, 0.0, 0.25, 0.25, 0.25)


def test_spread_needs_one_weight_per_client():
    with pytest.raises(ValueError, match="shorter"):
        spread([0.1, 0.2], [1])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_equal_weights_give_the_plain_mean(values):
    measured = spread(values, [3] * len(values))
    assert measured.weighted == pytest.approx(measured.mean, rel=1e-9, abs=1e-6)
    assert measured.min <= measured.mean <= measured.max


@settings(deadline=None, max_examples=50)
@given(values_of_seeds, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_interval_agrees_with_scipy(values, level):
    summary = summarise(values)
    if summary.std == 0:
        assert confidence_interval(values, level) == (summary.mean, summary.mean)
        return
    scale = summary.std / math.sqrt(summary.n)
    expected = stats.t.interval(level, summary.n - 1, loc=summary.mean, scale=scale)
    assert confidence_interval(values, level) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_interval_by_hand():
    # Student's t with two degrees of freedom has its 97.5 % quantile at 4.302652729749464.
    low, high = confidence_interval([1.0, 2.0, 3.0])
    assert low == pytest.approx(2 - 4.302652729749464 / math.sqrt(3))
    assert high == pytest.approx(2 + 4.302652729749464 / math.sqrt(3))


def test_one_difference_says_nothing():
    assert confidence_interval([5.0]) == (-math.inf, math.inf)


def test_equal_differences_are_certain():
    assert confidence_interval([0.1, 0.1, 0.1]) == (0.1, 0.1)


@pytest.mark.parametrize(
    ("summary", "digits", "text"),
    [
        (Summary(0.8123, 0.0041, 3), 3, "0.812 ± 0.004"),
        (Summary(81.25, 0.0, 3), 1, "81.2 ± 0.0"),
        (Summary(0.8123, 0.0, 1), 2, "0.81"),
        (Summary(math.nan, math.nan, 2), 2, "nan ± nan"),
    ],
)
def test_format(summary, digits, text):
    assert format_summary(summary, digits) == text


def test_scipy_is_not_loaded_by_importing():
    modules = "consort.results.claims, consort.results.summary"
    code = f"import sys, {modules}; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
