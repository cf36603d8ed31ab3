"""Thresholds are those that brute force finds, and likeness is what trigonometry says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consort.errors import Failure
from consort.experiment.trained import trained_model
from consort.use.calibration import calibration_scores, similarity, threshold

scores = st.lists(st.floats(-1, 1).map(lambda x: round(x, 2)), min_size=1, max_size=12)


def test_the_nearest_reference_counts():
    references = np.array([[3.0, 0.0], [0.0, 0.5]])
    angles = np.radians([0, 30, 50, 90, 180])
    queries = 7 * np.column_stack([np.cos(angles), np.sin(angles)])
    expected = [math.cos(min(a, abs(math.pi / 2 - a))) for a in angles]
    assert similarity(references, queries) == pytest.approx(expected, abs=1e-12)


def test_features_without_a_direction_are_like_nothing():
    assert similarity(np.zeros((2, 3)), np.ones((1, 3))).tolist() == [0]
    assert similarity(np.ones((2, 3)), np.zeros((1, 3))).tolist() == [0]


@given(scores, scores, st.floats(0, 1))
def test_a_wanted_far_is_kept_with_as_few_rejections_as_possible(genuine, forged, far):
    chosen, errors = threshold({"1": {"genuine": genuine, "forged": forged}}, 1, far)
    assert math.isfinite(chosen)
    assert errors.far == np.mean(np.array(forged) >= chosen) <= far
    assert errors.frr == np.mean(np.array(genuine) < chosen)
    for other in genuine:
        if np.mean(np.array(forged) >= other) <= far:
            assert errors.frr <= np.mean(np.array(genuine) < other)


@given(scores, scores)
def test_otherwise_the_errors_are_as_equal_as_can_be(genuine, forged):
    chosen, errors = threshold({"1": {"genuine": genuine, "forged": forged}}, 1, None)
    assert math.isfinite(chosen)
    gaps = [
        abs(np.mean(np.array(forged) >= t) - np.mean(np.array(genuine) < t))
        for t in [*genuine, *forged, 2]
    ]
    assert abs(errors.far - errors.frr) == pytest.approx(min(gaps), abs=1e-12)


def test_the_calibration_with_the_most_references_that_are_given_decides():
    table = {str(n): {"genuine": [n / 10], "forged": [-1.0]} for n in (1, 3)}
    assert [threshold(table, n, None)[0] for n in (1, 2, 3, 9)] == [0.1, 0.1, 0.3, 0.3]


def test_without_signatures_there_is_no_threshold():
    with pytest.raises(Failure, match="too few signatures"):
        threshold({}, 3, None)


def test_the_calibration_of_a_client_is_over_its_own_validation_signatures(run):
    trained = trained_model(run, "client-1")
    found = calibration_scores(trained.model, trained.data)
    truth = trained.data.validation.targets["detect"].bool()
    assert len(found["1"]["genuine"]) == 3 * truth.sum()
    assert len(found["1"]["forged"]) == 3 * (~truth).sum()
    assert calibration_scores(trained.model, trained.data) == found
    assert max(map(int, found)) <= 12
