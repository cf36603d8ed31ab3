import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from consort.aggregation.gap_weights import (
    decayed,
    exponential_gap_weights,
    gap_weights,
    printed_gap_weights,
    uncentred_gap_weights,
)

WEIGHTS, GAPS = [0.2, 0.3, 0.5], [0.02, -0.01, 0.05]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0.2, [0.2, 0.1, 0.7]),
        (decayed(0.2, 10, 20), [0.2, 0.2, 0.6]),
        (0.8, [1 / 6, 0, 5 / 6]),
        (0.8 / 3, [0.2, 0.3 - 0.8 / 3, 0.5 + 0.8 / 3]),
        (0.0, WEIGHTS),
    ],
)
def test_golden_numbers(step, expected):
    assert gap_weights(WEIGHTS, GAPS, step) == pytest.approx(expected)


def test_steps_decay_to_nothing():
    assert [decayed(0.8, t, 4) for t in range(5)] == pytest.approx([0.8, 0.6, 0.4, 0.2, 0])


def test_equal_gaps_change_nothing():
    for rule in (gap_weights, printed_gap_weights, exponential_gap_weights):
        assert rule(WEIGHTS, [0.3, 0.3, 0.3], 0.8) == WEIGHTS
    assert uncentred_gap_weights(WEIGHTS, [0.0, 0.0, 0.0], 0.8) == WEIGHTS
    assert gap_weights([1.0], [0.4], 0.8) == [1.0]


def test_the_largest_gap_as_denominator_lets_weights_fall_further():
    weights, gaps = [0.4, 0.3, 0.3], [-0.04, 0.02, 0.02]
    assert gap_weights(weights, gaps, 0.1) == pytest.approx([0.3, 0.35, 0.35])
    assert gap_weights(weights, gaps, 0.1, "largest") == pytest.approx([0.2, 0.4, 0.4])


def test_feddg_ga_does_not_centre():
    moved = [0.2 + 0.1 * 0.4, 0.3 - 0.1 * 0.2, 0.5 + 0.1]
    expected = [weight / sum(moved) for weight in moved]
    assert uncentred_gap_weights(WEIGHTS, GAPS, 0.1) == pytest.approx(expected)
    assert uncentred_gap_weights([0.5, 0.5], [-1.0, -1.0], 0.8) == [0, 0]


def test_the_printed_fraction_loses_its_denominator_and_has_the_other_sign():
    """Both terms are in the numerator, and gaps are global minus local."""
    gaps = [-gap for gap in GAPS]
    mean = sum(gaps) / 3
    largest = max(gap - mean for gap in gaps)
    raw = [((g - mean) * 0.8 + w) / largest for w, g in zip(WEIGHTS, gaps, strict=True)]
    expected = [value / sum(raw) for value in raw]
    assert printed_gap_weights(WEIGHTS, GAPS, 0.8) == pytest.approx(expected)
    assert expected[2] < 0.5 < gap_weights(WEIGHTS, GAPS, 0.8)[2]


def test_factors_by_hand():
    moved = [w * math.exp(0.5 * gap) for w, gap in zip(WEIGHTS, GAPS, strict=True)]
    expected = [weight / sum(moved) for weight in moved]
    assert exponential_gap_weights(WEIGHTS, GAPS, 0.5) == pytest.approx(expected)
    assert exponential_gap_weights([0.0, 1.0], [1.0, 0.0], 1.0) == [0.0, 1.0]
    assert exponential_gap_weights([0.0, 1.0], [1e6, 0.0], 1.0) == [0.0, 1.0]


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=6), st.floats(0, 1))
def test_factors_are_bounded_and_throw_nobody_out(gaps, step):
    before = 1 / len(gaps)
    for after in exponential_gap_weights([before] * len(gaps), gaps, step):
        assert math.exp(-2 * step) - 1e-9 <= after / before <= math.exp(2 * step) + 1e-9


clients = st.integers(2, 6).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(0.01, 1), min_size=n, max_size=n),
        st.lists(st.floats(-1, 1), min_size=n, max_size=n),
    )
)
steps = st.floats(0, 1)
rules = st.sampled_from(
    [gap_weights, printed_gap_weights, uncentred_gap_weights, exponential_gap_weights]
)


def shares(raw):
    return [value / sum(raw) for value in raw]


@given(clients, steps, rules)
def test_weights_stay_shares(drawn, step, rule):
    weights, gaps = shares(drawn[0]), drawn[1]
    found = rule(weights, gaps, step)
    assert all(0 <= weight <= 1 + 1e-12 for weight in found)
    assert sum(found) == pytest.approx(1) or not any(found)


@given(clients, st.floats(0.001, 0.05))
def test_changes_add_up_to_nothing_before_anything_is_cut(drawn, step):
    weights, gaps = shares(drawn[0]), drawn[1]
    assume(step < min(weights) and step < 1 - max(weights))
    mean = sum(gaps) / len(gaps)
    largest = max(abs(gap - mean) for gap in gaps)
    assume(largest > 1e-6)
    expected = [w + step * (g - mean) / largest for w, g in zip(weights, gaps, strict=True)]
    assert sum(expected) == pytest.approx(1)
    assert gap_weights(weights, gaps, step) == pytest.approx(expected)
    mirrored = gap_weights(weights, [-gap for gap in gaps], step)
    for before, after, mirror in zip(weights, expected, mirrored, strict=True):
        assert after - before == pytest.approx(before - mirror, abs=1e-9)


@given(clients, steps)
def test_the_client_with_the_largest_gap_never_loses(drawn, step):
    weights, gaps = shares(drawn[0]), drawn[1]
    most = gaps.index(max(gaps))
    moved = gap_weights(weights, gaps, step)
    assert moved[most] >= min(weights[most], 1 / len(gaps)) - 1e-9


@given(clients, steps, rules, st.randoms())
def test_the_order_of_clients_does_not_matter(drawn, step, rule, chance):
    weights, gaps = shares(drawn[0]), drawn[1]
    order = list(range(len(gaps)))
    chance.shuffle(order)
    found = rule(weights, gaps, step)
    shuffled = rule([weights[i] for i in order], [gaps[i] for i in order], step)
    assert shuffled == pytest.approx([found[i] for i in order])


@given(clients, steps, rules, st.floats(0.1, 0.9))
def test_shares_of_some_clients_keep_their_sum(drawn, step, rule, part):
    weights, gaps = [part * share for share in shares(drawn[0])], drawn[1]
    found = rule(weights, gaps, step)
    assert sum(found) == pytest.approx(part) or not any(found)
