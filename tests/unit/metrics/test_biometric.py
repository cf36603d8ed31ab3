from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import auc, det_curve, precision_score, recall_score, roc_auc_score, roc_curve

from consort.metrics.biometric import (
    Errors,
    area_under_curve,
    equal_error_rate,
    equal_error_threshold,
    equal_errors,
    equal_errors_of_users,
    error_curve,
    errors_at,
    mean_area_under_curve,
    true_acceptance_rate,
)

TIED = st.lists(st.integers(-4, 4), min_size=1, max_size=12)
PAIRS = st.lists(st.tuples(TIED, TIED), min_size=1, max_size=5)
few = settings(deadline=None, max_examples=60)


@st.composite
def unlike_scores(draw):
    """Genuine and forged scores of which no two are the same."""
    values = draw(st.lists(st.integers(-99, 99), min_size=2, max_size=40, unique=True))
    cut = draw(st.integers(1, len(values) - 1))
    return values[:cut], values[cut:]


def brute_force(genuine, forged):
    """All (|FAR - FRR|, threshold, FAR, FRR), exact where the numbers of scores allow it."""
    found = []
    for threshold in sorted({*genuine, *forged, np.inf}, reverse=True):
        far = sum(score >= threshold for score in forged) / len(forged)
        frr = sum(score < threshold for score in genuine) / len(genuine)
        found.append((round(abs(far - frr), 12), threshold, far, frr))
    return found


def as_learners_see_it(genuine, forged):
    return [1] * len(genuine) + [0] * len(forged), genuine + forged


# Against definitions


@given(TIED, TIED)
@few
def test_equal_errors_are_those_of_the_definition(genuine, forged):
    _, threshold, far, frr = min(brute_force(genuine, forged), key=lambda point: point[0])
    assert equal_error_threshold(genuine, forged) == threshold
    errors = equal_errors(genuine, forged)
    assert (errors.far, errors.frr) == (far, frr)
    assert equal_error_rate(genuine, forged) == (far + frr) / 2


@given(TIED, TIED, st.integers(-5, 5))
@few
def test_error_rates_count_scores(genuine, forged, threshold):
    far = sum(score >= threshold for score in forged) / len(forged)
    frr = sum(score < threshold for score in genuine) / len(genuine)
    errors = errors_at(genuine, forged, threshold)
    assert (errors.far, errors.frr, errors.mean) == (far, frr, (far + frr) / 2)


@given(TIED, TIED, st.sampled_from([0.0, 0.01, 0.1, 0.25, 0.5, 1.0]))
@few
def test_true_acceptance_rate_is_the_best_at_an_allowed_threshold(genuine, forged, limit):
    allowed = [1 - frr for _, _, far, frr in brute_force(genuine, forged) if far <= limit]
    assert true_acceptance_rate(genuine, forged, limit) == allowed[-1] == max(allowed)


@given(PAIRS)
@few
def test_errors_with_user_thresholds_are_summed_over_users(users):
    rejected = accepted = 0
    for genuine, forged in users:
        _, threshold, _, _ = min(brute_force(genuine, forged), key=lambda point: point[0])
        rejected += sum(score < threshold for score in genuine)
        accepted += sum(score >= threshold for score in forged)
    own, others = (sum(map(len, part)) for part in zip(*users, strict=True))
    errors = equal_errors_of_users(users)
    assert errors == Errors(rejected, own, accepted, others)
    assert errors.mean == (rejected / own + accepted / others) / 2


def test_users_with_more_signatures_weigh_more():
    perfect, hopeless = ([1] * 9, [0] * 9), ([0], [1])
    errors = equal_errors_of_users([perfect, hopeless])
    assert (errors.frr, errors.far) == (0.1, 0.1)
    assert mean_area_under_curve([perfect, hopeless]) == 0.5


# Against scikit-learn


@given(TIED, TIED)
@few
def test_curves_and_areas_agree_with_scikit_learn(genuine, forged):
    truths, values = as_learners_see_it(genuine, forged)
    accepted, hits, thresholds = roc_curve(truths, values, drop_intermediate=False)
    curve = error_curve(genuine, forged)
    np.testing.assert_array_equal(curve.thresholds, thresholds)
    np.testing.assert_allclose(curve.far, accepted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(curve.tar, hits, rtol=0, atol=1e-12)
    assert area_under_curve(genuine, forged) == pytest.approx(roc_auc_score(truths, values))
    assert auc(curve.far, curve.tar) == pytest.approx(roc_auc_score(truths, values))
    best = np.argmin(np.round(abs(accepted - (1 - hits)), 12))
    assert equal_error_rate(genuine, forged) == pytest.approx((accepted[best] + 1 - hits[best]) / 2)


def test_points_of_a_det_curve_are_scikit_learns():
    generator = np.random.default_rng(0)
    genuine, forged = generator.normal(1, 1, 60), generator.normal(0, 1, 80)
    truths = np.repeat([1, 0], [60, 80])
    far, frr, thresholds = det_curve(truths, np.concatenate([genuine, forged]))
    curve = error_curve(genuine, forged)
    for point in zip(thresholds, far, frr, strict=True):
        (place,) = np.flatnonzero(curve.thresholds == point[0])
        assert (curve.far[place], curve.frr[place]) == pytest.approx(point[1:])


@given(TIED, TIED)
@few
def test_precision_and_recall_agree_with_scikit_learn(genuine, forged):
    truths, values = as_learners_see_it(genuine, forged)
    errors = equal_errors(genuine, forged)
    decisions = np.array(values) >= equal_error_threshold(genuine, forged)
    expected = precision_score(truths, decisions, zero_division=0)
    assert errors.precision == pytest.approx(expected)
    assert errors.recall == pytest.approx(recall_score(truths, decisions))


@given(PAIRS)
@few
def test_the_mean_area_is_that_of_the_users(users):
    areas = [roc_auc_score(*as_learners_see_it(*scores)) for scores in users]
    assert mean_area_under_curve(users) == pytest.approx(np.mean(areas))


# Properties


def test_error_rates_by_hand():
    high, low = [3.0, 4.0, 5.0], [0.0, 1.0, 2.0]
    rate = equal_error_rate
    assert (rate(high, low), rate(low, high), rate(low, low)) == (0, 1, 0.5)
    assert area_under_curve(high, low) == 1
    assert true_acceptance_rate(high, low, 0.0) == 1
    assert equal_error_threshold(high, low) == 3
    mixed = [1.5, 3.5, 4.5], [0.0, 1.0, 4.0]
    assert equal_error_rate(*mixed) == pytest.approx(1 / 3)
    assert true_acceptance_rate(*mixed, 0.0) == pytest.approx(1 / 3)
    assert true_acceptance_rate(*mixed, 0.34) == 1


def test_the_same_distribution_cannot_be_told_apart():
    genuine, forged = np.random.default_rng(3).normal(size=(2, 4000))
    assert equal_error_rate(genuine, forged) == pytest.approx(0.5, abs=0.03)
    assert area_under_curve(genuine, forged) == pytest.approx(0.5, abs=0.03)


@given(TIED, TIED)
@few
def test_swapping_signs_swaps_the_area(genuine, forged):
    swapped = area_under_curve([-s for s in genuine], [-s for s in forged])
    assert swapped == pytest.approx(1 - area_under_curve(genuine, forged))
    assert area_under_curve(forged, genuine) == pytest.approx(swapped)


@given(unlike_scores())
@few
def test_only_the_order_of_scores_counts(scores):
    bent = [np.exp(np.array(part) / 30) for part in scores]
    for metric in (area_under_curve, equal_error_rate, equal_errors):
        assert metric(*scores) == metric(*bent)
    assert true_acceptance_rate(*scores, 0.1) == true_acceptance_rate(*bent, 0.1)


@given(TIED, TIED)
@few
def test_curves_start_with_nothing_accepted_and_end_with_everything(genuine, forged):
    curve = error_curve(genuine, forged)
    assert (curve.thresholds[0], curve.far[0], curve.tar[0]) == (np.inf, 0, 0)
    assert (curve.far[-1], curve.tar[-1]) == (1, 1)
    assert np.all(np.diff(curve.far) >= 0)
    assert np.all(np.diff(curve.frr) <= 0)


@given(st.integers(0, 4), st.integers(1, 9), st.integers(0, 4), st.integers(1, 9))
@few
def test_counts_add_up(rejected, genuine, accepted, forged):
    one = Errors(rejected, genuine, accepted, forged)
    assert one + one == Errors(2 * rejected, 2 * genuine, 2 * accepted, 2 * forged)
    assert (one + one).mean == one.mean


# Corners


def test_nothing_accepted_has_no_precision():
    errors = errors_at([0.0, 1.0], [2.0], 3.0)
    assert (errors.precision, errors.recall) == (0, 0)


finite_or_not = st.sampled_from([-1.0, 0.0, 1.0, np.nan, np.inf, -np.inf])


@given(arrays(float, st.integers(1, 6), elements=finite_or_not), TIED)
@few
def test_strange_scores_have_a_defined_result(strange, ordinary):
    lowest = np.where(np.isnan(strange), -np.inf, strange)
    for scores, same in (
        ((strange, ordinary), (lowest, ordinary)),
        ((ordinary, strange), (ordinary, lowest)),
    ):
        for metric in (equal_error_rate, area_under_curve):
            assert 0 <= metric(*scores) == metric(*same) <= 1
        assert 0 <= true_acceptance_rate(*scores, 0.1) <= 1


def test_what_is_not_a_number_is_never_accepted():
    errors = errors_at([np.nan, 1.0], [np.nan, 1.0], 0.0)
    assert (errors.far, errors.frr) == (0.5, 0.5)
    assert area_under_curve([1.0], [np.nan]) == 1


@pytest.mark.parametrize(("genuine", "forged"), [([], [1.0]), ([1.0], []), ([], [])])
def test_no_scores_are_an_error(genuine, forged):
    for metric in (equal_error_rate, area_under_curve, error_curve):
        with pytest.raises(ValueError, match="at least one genuine and one forged score"):
            metric(genuine, forged)


def test_tensors_are_scores_too():
    genuine, forged = torch.tensor([1.5, 3.5]), torch.tensor([0.0, 2.0])
    assert equal_error_rate(genuine, forged) == 0.5
    assert area_under_curve(genuine, forged) == 0.75
