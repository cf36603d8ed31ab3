"""Thresholds are those that brute force finds, and likeness is what trigonometry says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consort.domains.signatures.scan import Scan
from consort.errors import Failure
from consort.experiment.trained import trained_model
from consort.metrics.intervals import clopper_pearson
from consort.use.background import synthetic_background
from consort.use.calibration import (
    best_method,
    calibration_scores,
    error_rate,
    similarity,
    threshold,
    trials_with,
)
from consort.use.formats import Outputs

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


def trials(genuine, forged, kind="skilled"):
    """Every score is of another user."""
    return {
        "genuine": [[float(user), score] for user, score in enumerate(genuine)],
        kind: [[float(user), score] for user, score in enumerate(forged)],
    }


@given(scores, scores, st.floats(0, 1))
def test_a_wanted_far_is_kept_with_as_few_rejections_as_possible(genuine, forged, far):
    chosen = threshold(trials(genuine, forged), far)
    assert math.isfinite(chosen.threshold)
    assert chosen.far == np.mean(np.array(forged) >= chosen.threshold) <= far
    assert chosen.frr == np.mean(np.array(genuine) < chosen.threshold)
    for other in genuine:
        if np.mean(np.array(forged) >= other) <= far:
            assert chosen.frr <= np.mean(np.array(genuine) < other)


@given(scores, scores)
def test_otherwise_the_errors_are_as_equal_as_can_be(genuine, forged):
    chosen = threshold(trials(genuine, forged), None)
    assert math.isfinite(chosen.threshold)
    gaps = [
        abs(np.mean(np.array(forged) >= t) - np.mean(np.array(genuine) < t))
        for t in [*genuine, *forged, 2]
    ]
    assert abs(chosen.far - chosen.frr) == pytest.approx(min(gaps), abs=1e-12)


def test_skilled_forgeries_decide_and_others_are_told_apart():
    both = trials([3.0, 4.0], [2.0, 2.5]) | trials([], [0.0, 3.5, 1.0, 1.0], "random")
    both["genuine"] = [[0.0, 3.0], [1.0, 4.0]]
    chosen = threshold(both, 0)
    assert (chosen.threshold, chosen.far, chosen.frr) == (3.0, 0, 0)
    assert chosen.rates["random"].value == 0.25
    assert threshold(trials([3.0], [1.0], "random"), 0).threshold == 3.0


def test_an_interval_contains_the_rate_and_counts_a_signature_once():
    rows = trials([1.0] * 27 + [0.0] * 3, [0.5] * 3)
    rate = threshold(rows, 0).rates["genuine"]
    assert rate.value == pytest.approx(0.1)
    exact = clopper_pearson(1, 10)  # three draws of ten signatures
    assert rate.low <= exact.low < rate.value < exact.high <= rate.high


def test_the_calibration_with_the_most_references_that_are_given_decides():
    table = {"svm": {str(n): trials([n / 10], [-1.0]) for n in (1, 3)}}
    found = [threshold(trials_with(table, "svm", n), None).threshold for n in (1, 2, 3, 9)]
    assert found == [0.1, 0.1, 0.3, 0.3]


def test_the_method_with_fewer_errors_is_chosen_and_the_detector_only_for_known_users():
    good, bad, best = trials([1.0, 0.4], [0.5]), trials([0.0], [0.5]), trials([1.0], [0.0])
    table = {"cosine": {"1": bad}, "svm": {"1": good}, "fused": {"1": best}}
    assert best_method(table, 1, known=False) == "svm"
    assert best_method(table, 1, known=True) == "fused"
    del table["fused"]
    assert best_method(table, 1, known=True) == "svm"


def test_without_signatures_there_is_no_threshold():
    with pytest.raises(Failure, match="too few signatures or prints"):
        trials_with({}, "svm", 3)


def test_the_calibration_of_a_client_is_over_its_own_validation_signatures(run):
    trained = trained_model(run, "client-1")
    outputs = Outputs(trained.model.eval(), tuple(trained.model.heads))
    background = synthetic_background(outputs, Scan((32, 48), cleaned=False), 1).features
    found, fusion = calibration_scores(outputs, trained.data, background, 1)
    truth = trained.data.validation.targets["detect"].bool()
    for method in ("cosine", "svm", "fused"):
        one = found[method]["1"]
        assert len(one["genuine"]) == 3 * truth.sum()
        assert len(one["skilled"]) == 3 * (~truth).sum()
        assert max(map(int, found[method])) <= 12
    assert calibration_scores(outputs, trained.data, background, 1) == (found, fusion)
    most = max(found["svm"], key=int)
    assert 0 <= error_rate(found["fused"][most]) <= 1
    assert all(factor > 0 for factor in fusion)
