"""Thresholds come from one table and errors from the other."""

from __future__ import annotations

import numpy as np
import pytest

from consort.metrics.biometric import equal_error_rate
from consort.metrics.intervals import clopper_pearson
from consort.results.score_files import ScoredProbe, ScoreTable
from consort.results.verification_rates import own_curve, rates_at_thresholds


def table(seed: int, users: int = 6, shift: float = 0.0) -> ScoreTable:
    generator = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        for number in range(10):
            genuine, skilled, random = generator.normal([3, 1, -1]) + shift
            rows.append(ScoredProbe(f"{user}", f"{user}", f"g{number}", "", genuine))
            rows.append(ScoredProbe(f"{user}", "forger", f"f{number}", "skilled", skilled))
            rows.append(ScoredProbe(f"{user}", "other", f"r{number}", "", random))
    return ScoreTable(tuple(rows))


def test_rates_are_counted_on_the_tested_scores_at_thresholds_of_the_others():
    development, tested = table(0), table(1, shift=0.5)
    found = {(row.rule, row.kind): row for row in rates_at_thresholds(development, tested, "dev")}
    assert len(found) == 6
    for row in found.values():
        assert row.origin == "dev"
        wrong = int((tested.scores() < row.threshold).sum())
        assert (row.fnmr.wrong, row.fnmr.total) == (wrong, 60)
        assert row.fnmr.clopper_pearson == clopper_pearson(wrong, 60)
        for kind, rate in row.fmr.items():
            assert rate.value == np.mean(tested.scores(kind) >= row.threshold)
    strict = found["FMR100", "skilled"]
    assert np.mean(development.scores("skilled") >= strict.threshold) <= 0.01
    assert strict.fmr["random"].value <= strict.fmr["skilled"].value
    assert found["EER", "random"].threshold < found["EER", "skilled"].threshold


def test_random_impostors_and_skilled_forgeries_are_kept_apart():
    scores = table(2)
    skilled, random = own_curve(scores, "skilled"), own_curve(scores, "random")
    assert skilled.eer == equal_error_rate(scores.scores(), scores.scores("skilled"))
    assert random.eer < skilled.eer
    assert skilled.eer_interval.low <= skilled.eer <= skilled.eer_interval.high
    points = skilled.points
    assert points["FMR100"] <= points["FMR1000"] <= points["ZeroFMR"]
    assert skilled.eer_of_users <= skilled.eer + 0.05


def test_one_user_has_no_interval_over_users():
    scores = table(3, users=1)
    assert own_curve(scores, "skilled").eer_interval is None
    assert rates_at_thresholds(scores, scores, "itself")[0].fnmr.over_users is None


def test_without_random_impostors_there_are_no_rates_of_them():
    scores = ScoreTable(tuple(row for row in table(4).rows if row.probe != "other"))
    assert {row.kind for row in rates_at_thresholds(scores, scores, "itself")} == {"skilled"}
    with pytest.raises(ValueError, match="at least one"):
        own_curve(scores, "random")
