from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.aggregation.conflict_averse import conflict_averse_factors, conflict_averse_weights
from consort.errors import Failure

DOUBLE = torch.float64
GOLDEN = torch.tensor([[1, 0, 0.5], [-0.6, 0.8, 0.1], [0.2, -0.3, 1]], dtype=DOUBLE)

updates = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(0, 999)).map(
    lambda drawn: torch.randn(
        drawn[:2], dtype=DOUBLE, generator=torch.Generator().manual_seed(drawn[2])
    )
)
radii = st.sampled_from([0.1, 0.4, 0.8, 1.5])


def objective(rows, weights, c):
    """F(w) of the specification, written out."""
    mean, mixed = rows.mean(0), weights @ rows
    return mixed @ mean + c * mean.norm() * mixed.norm(dim=-1)


def of(rows, c):
    return conflict_averse_factors(rows @ rows.T, c) @ rows


def test_the_golden_numbers():
    inner = GOLDEN @ GOLDEN.T
    weights = conflict_averse_weights(inner, 0.4)
    torch.testing.assert_close(weights, torch.tensor([0.0, 1, 0]).double(), atol=1e-6, rtol=0)
    assert float(objective(GOLDEN, weights, 0.4)) == pytest.approx(0.305244, abs=1e-6)
    assert of(GOLDEN, 0.4).tolist() == pytest.approx([0.058271, 0.355639, 0.556955], abs=1e-6)
    rescaled = of(GOLDEN, 0.4) / (1 + 0.4**2)
    assert rescaled.tolist() == pytest.approx([0.050234, 0.306585, 0.480133], abs=1e-6)
    weights = conflict_averse_weights(inner, 0.8)
    assert weights.tolist() == pytest.approx([0.3134, 0.6866, 0], abs=1e-4)
    assert float(objective(GOLDEN, weights, 0.8)) == pytest.approx(0.477772, abs=1e-6)


@given(updates, radii)
def test_no_point_of_a_grid_is_better(rows, c):
    rows = rows[:3]
    steps = torch.linspace(0, 1, 41, dtype=DOUBLE)
    grid = torch.cartesian_prod(*[steps] * len(rows)).reshape(-1, len(rows))
    grid = grid[(grid.sum(1) - 1).abs() < 1e-9]
    found = objective(rows, conflict_averse_weights(rows @ rows.T, c), c)
    assert float(found) <= float(objective(rows, grid, c).min()) + 1e-9


@given(updates, radii)
def test_the_worst_client_gains_what_the_dual_promises_and_no_direction_gives_it_more(rows, c):
    """Strong duality: a proof of optimality that does not depend on any solver."""
    weights = conflict_averse_weights(rows @ rows.T, c)
    length = float(rows.norm(dim=1).mean())
    if float((weights @ rows).norm()) < 1e-3 * length:
        return  # opposed updates: nothing is added, see below
    worst = float((rows @ of(rows, c)).min())
    bound = float(objective(rows, weights, c))
    assert worst == pytest.approx(bound, abs=1e-5 * length**2)


@given(updates, radii)
def test_the_update_lies_on_the_sphere_around_the_mean(rows, c):
    mean, mixed = rows.mean(0), conflict_averse_weights(rows @ rows.T, c) @ rows
    if float(mixed.norm()) < 1e-3 * float(rows.norm(dim=1).mean()):
        return
    assert float((of(rows, c) - mean).norm()) == pytest.approx(c * float(mean.norm()), rel=1e-6)


@given(updates, radii, st.sampled_from([1e-12, 1e-3, 50.0, 1e12]))
def test_scale_does_not_matter(rows, c, scale):
    torch.testing.assert_close(
        of(rows * scale, c), of(rows, c) * scale, rtol=1e-5, atol=1e-7 * scale
    )


@given(updates, radii)
def test_order_does_not_matter(rows, c):
    torch.testing.assert_close(of(rows.flip(0), c), of(rows, c), rtol=1e-5, atol=1e-6)


@given(st.integers(0, 999), radii)
def test_two_updates_agree_with_a_search_on_the_line(seed, c):
    rows = torch.randn(2, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))

    def value(share):
        return float(objective(rows, torch.tensor([share, 1 - share], dtype=DOUBLE), c))

    low, high, golden = 0.0, 1.0, (math.sqrt(5) - 1) / 2
    while high - low > 1e-9:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if value(left) < value(right) else (left, high)
    found = objective(rows, conflict_averse_weights(rows @ rows.T, c), c)
    assert float(found) == pytest.approx(value(low), abs=1e-8)


@given(updates, radii)
def test_sequential_quadratic_programming_finds_nothing_better(rows, c):
    from scipy.optimize import minimize

    count = len(rows)

    def value(weights):
        return float(objective(rows, torch.from_numpy(weights), c))

    theirs = minimize(
        value,
        [1 / count] * count,
        bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda weights: 1 - weights.sum()},
        method="SLSQP",
    )
    found = objective(rows, conflict_averse_weights(rows @ rows.T, c), c)
    assert float(found) <= theirs.fun + 1e-6


@given(updates, radii)
def test_torchjd_agrees(rows, c):
    pytest.importorskip("cvxpy")
    from torchjd.aggregation import CAGrad

    length = float((conflict_averse_weights(rows @ rows.T, c) @ rows).norm())
    if length < 1e-3:
        return
    theirs = CAGrad(c=c, norm_eps=1e-12)(rows)
    torch.testing.assert_close(of(rows, c), theirs, rtol=1e-3, atol=1e-4)


def test_without_a_radius_it_is_the_mean():
    torch.testing.assert_close(of(GOLDEN, 0.0), GOLDEN.mean(0))


def test_one_update_and_equal_updates_grow():
    row = torch.tensor([[3.0, 4.0]], dtype=DOUBLE)
    for rows in (row, row.expand(3, 2)):
        torch.testing.assert_close(of(rows, 0.4), 1.4 * row[0])


def test_opposed_and_missing_updates_add_nothing():
    opposed = torch.tensor([[1.0, 0], [1, 0], [-1, 0]], dtype=DOUBLE)
    torch.testing.assert_close(of(opposed, 1.5), opposed.mean(0))
    torch.testing.assert_close(of(opposed, 0.4), 0.6 * opposed.mean(0))  # nearer to the one
    still = torch.zeros(3, 2, dtype=DOUBLE)
    assert of(still, 0.4).tolist() == [0, 0]


def test_updates_that_are_no_numbers_are_refused():
    with pytest.raises(Failure, match="learning rate"):
        conflict_averse_factors(torch.full((2, 2), torch.inf), 0.4)
