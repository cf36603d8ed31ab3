"""Tests of significance: exact against SciPy, hand-computed cases and Demšar's own example."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from consort.errors import UsageError
from consort.results.significance import (
    Friedman,
    critical_difference,
    friedman,
    holm,
    t_test,
    wilcoxon,
)

# Demšar (2006), Table 6: AUC of C4.5 with and without tuning of m and cf on 14 data sets.
DEMSAR = {
    "C4.5": [.763, .599, .954, .628, .882, .936, .661, .583, .775, 1, .940, .619, .972, .957],
    "+m": [.768, .591, .971, .661, .888, .931, .668, .583, .838, 1, .962, .666, .981, .978],
    "+cf": [.771, .590, .968, .654, .886, .916, .609, .563, .866, 1, .965, .614, .976, .946],
    "+m+cf": [.798, .569, .967, .657, .898, .931, .685, .625, .875, 1, .962, .669, .975, .970],
}  # fmt: skip
values = st.lists(st.integers(-1000, 1000).map(lambda n: n / 8), min_size=5, max_size=12)


def test_students_t_by_hand():
    # Differences 1, 2, 3: mean 2, deviation 1, t = 2√3 with two degrees of freedom,
    # for which the distribution is 1/2 + t / (2 √(2 + t²)).
    t = 2 * math.sqrt(3)
    expected = 1 - t / math.sqrt(2 + t**2)
    assert t_test([2, 4, 6], [1, 2, 3]) == pytest.approx(expected, rel=1e-12)


def test_wilcoxon_by_hand():
    # Five differences, all positive: of the 2⁵ signs two are as extreme.
    assert wilcoxon([1, 2, 3, 4, 5], [0, 0, 0, 0, 0]) == 2 / 32
    # The smallest of five is negative: rank sum 1, which 2 of 32 reach, and as many above.
    assert wilcoxon([-1, 2, 3, 4, 5], [0, 0, 0, 0, 0]) == 4 / 32


@given(values, st.randoms())
def test_both_agree_with_scipy(one, random):
    other = [value + random.randint(-400, 400) / 16 + 1 / 32 for value in one]
    differences = [a - b for a, b in zip(one, other, strict=True)]
    if len(set(differences)) > 1 and sum(differences):
        assert t_test(one, other) == pytest.approx(stats.ttest_rel(one, other).pvalue, rel=1e-9)
    assert wilcoxon(one, other) == stats.wilcoxon(one, other).pvalue


@pytest.mark.parametrize("test", [t_test, wilcoxon])
def test_no_difference_is_not_significant(test):
    assert test([0.5, 0.25, 1], [0.5, 0.25, 1]) == 1


def test_one_pair_decides_nothing_and_a_constant_gain_everything():
    assert t_test([1], [2]) == 1
    assert t_test([1, 2, 3], [0, 1, 2]) == 0


def test_holm_by_hand():
    # 0.01 · 4, 0.02 · 3, 0.03 · 2 = 0.06 again, 0.04 · 1 may not be below the one before it.
    given = {"d": 0.04, "a": 0.01, "c": 0.03, "b": 0.02}
    assert holm(given) == pytest.approx({"d": 0.06, "a": 0.04, "c": 0.06, "b": 0.06})
    assert list(holm(given)) == list(given)
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1, "b": 1}
    assert holm({}) == {}


@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8))
def test_holm_lies_between_the_raw_value_and_bonferronis(given):
    for name, corrected in holm(given).items():
        assert given[name] <= corrected <= min(1, len(given) * given[name])


def test_demsars_example():
    found = friedman(DEMSAR)
    assert found.blocks == 14
    assert found.ranks == pytest.approx(
        {"+m+cf": 27.5 / 14, "+m": 2, "+cf": 40.5 / 14, "C4.5": 44 / 14}
    )
    assert list(found.ranks) == ["+m+cf", "+m", "+cf", "C4.5"]
    # His 9.28 has no correction for ties: one of four and three of two divide by 1 - 78/840.
    without_ties = 12 * 14 / 20 * (sum(rank**2 for rank in found.ranks.values()) - 25)
    assert without_ties == pytest.approx(9.28, abs=0.01)
    assert found.statistic == pytest.approx(without_ties / (1 - 78 / 840))
    assert found.probability == pytest.approx(stats.chi2.sf(found.statistic, 3))
    assert found.critical_difference == pytest.approx(1.25, abs=0.005)
    assert found.groups == [("+m+cf", "+m", "+cf", "C4.5")]  # 3.143 - 1.964 = 1.18 is less


@pytest.mark.parametrize(
    ("algorithms", "quantile"),
    [*enumerate([1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164], start=2)],
)
def test_critical_values_are_those_of_demsars_table(algorithms, quantile):
    expected = quantile * math.sqrt(algorithms * (algorithms + 1) / (6 * 10))
    assert critical_difference(algorithms, 10) == pytest.approx(expected, rel=5e-4)


def test_lower_may_be_better():
    errors = {name: [1 - value for value in row] for name, row in DEMSAR.items()}
    assert friedman(errors, higher_is_better=False).ranks == pytest.approx(friedman(DEMSAR).ranks)


def test_groups_overlap_and_none_lies_within_another():
    ranks = {"a": 1.0, "b": 2.0, "c": 2.5, "d": 4.0, "e": 5.5}
    assert Friedman(20, 0.001, ranks, 1.6, 10).groups == [("a", "b", "c"), ("c", "d"), ("d", "e")]
    assert Friedman(20, 0.001, ranks, 0.4, 10).groups == []
    assert Friedman(2, 0.9, ranks, 0.4, 10).groups == [tuple(ranks)]  # Friedman comes first


def test_equal_algorithms_are_not_ranked():
    found = friedman({"a": [1, 2], "b": [1, 2], "c": [1, 2]})
    assert (found.statistic, found.probability, set(found.ranks.values())) == (0, 1, {2})


def test_what_cannot_be_tested_is_refused():
    with pytest.raises(UsageError, match="at least three algorithms"):
        friedman({"a": [1, 2], "b": [1, 2]})
    with pytest.raises(UsageError, match="several seeds, clients or folders"):
        friedman({"a": [1], "b": [1], "c": [2]})
