"""Smooth Tchebycheff set scalarisation: golden numbers, derivatives, limits and bounds."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from consort.aggregation.stch_set import (
    RunningStep,
    set_weights,
    smooth_objective,
)
from consort.core.params import Params

DOUBLE = torch.float64
GOLDEN = torch.tensor(
    [[0.9, 1.1, 1.0], [0.3, 0.5, 0.2], [2.0, 1.8, 2.2], [0.7, 0.7, 0.7]], dtype=DOUBLE
)
CLIENTS, MODELS = GOLDEN.shape


def objective(losses):
    """The loss of the worst client with its best model: what g becomes as mu goes to 0."""
    return float(losses.min(1).values.max())


def bounds(losses, mu):
    """g lies between these, whatever the losses."""
    clients, models = losses.shape
    exact = objective(losses.double())
    return exact - mu * math.log(models), exact + mu * math.log(clients)


losses = st.floats(0, 20)
tables = st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.lists(losses, min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    ).map(lambda rows: torch.tensor(rows, dtype=DOUBLE))
)
"""Up to six clients and five models."""
smoothness = st.floats(0.001, 100)


def differentiable(table, mu):
    """g as it is printed, except that the sums are taken in log space."""
    return mu * torch.logsumexp(-torch.logsumexp(-table / mu, 1), 0)


def assert_equal(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


# Golden numbers


def test_the_weights_at_the_golden_losses():
    expected = torch.tensor([0.202190, 0.103361, 0.544163, 0.150286], dtype=DOUBLE)
    assert_equal(set_weights(GOLDEN, 1.0).clients, expected, 5e-7)
    hard = set_weights(GOLDEN, 0.01).clients
    assert_equal(hard, torch.tensor([0.0, 0.0, 1.0, 0.0], dtype=DOUBLE))


@pytest.mark.parametrize(("mu", "value"), [(1.0, 1.496605), (0.1, 1.785717), (0.01, 1.8)])
def test_the_objective_at_the_golden_losses(mu, value):
    assert smooth_objective(GOLDEN, mu) == pytest.approx(value, abs=5e-7)


def test_the_formulas_as_they_are_printed():
    """Where nothing can overflow, without logarithms."""
    fit = (-GOLDEN / 0.7).exp()
    inverse = 1 / fit.sum(1)
    weights = set_weights(GOLDEN, 0.7)
    assert_equal(weights.models, fit * inverse[:, None])
    assert_equal(weights.clients, inverse / inverse.sum())
    assert smooth_objective(GOLDEN, 0.7) == pytest.approx(0.7 * float(inverse.sum().log()))


def test_the_worst_client_with_its_best_model():
    assert objective(GOLDEN) == 1.8


# Derivatives


@given(tables, smoothness)
def test_the_weights_are_the_gradient_by_autograd(table, mu):
    leaf = table.clone().requires_grad_()
    differentiable(leaf, mu).backward()
    assert_equal(set_weights(table, mu).gradient, leaf.grad, 1e-8)


@pytest.mark.parametrize("mu", [0.2, 1.0, 5.0])
def test_the_weights_are_the_gradient_by_finite_differences(mu):
    gradient = set_weights(GOLDEN, mu).gradient
    step = 1e-4
    for place in range(GOLDEN.numel()):
        move = torch.zeros(GOLDEN.numel(), dtype=DOUBLE)
        move[place] = step
        move = move.view_as(GOLDEN)
        # Fourth order: the error of the plain quotient would hide an error of the gradient.
        near = smooth_objective(GOLDEN + move, mu) - smooth_objective(GOLDEN - move, mu)
        far = smooth_objective(GOLDEN + 2 * move, mu) - smooth_objective(GOLDEN - 2 * move, mu)
        slope = (8 * near - far) / (12 * step)
        assert slope == pytest.approx(float(gradient.view(-1)[place]), abs=1e-8)


# Limits


def test_without_smoothness_one_model_counts_and_one_client():
    weights = set_weights(GOLDEN, 1e-4)
    third = 1 / 3
    assert_equal(
        weights.models,
        torch.tensor([[1, 0, 0], [0, 0, 1], [0, 1, 0], [third, third, third]], dtype=DOUBLE),
    )
    assert_equal(weights.clients, torch.tensor([0, 0, 1, 0], dtype=DOUBLE))
    assert smooth_objective(GOLDEN, 1e-4) == pytest.approx(objective(GOLDEN), abs=1e-12)


def test_ties_are_split_evenly():
    table = torch.tensor([[2.0, 2.0, 5.0], [2.0, 9.0, 2.0], [1.0, 1.0, 1.0]])
    weights = set_weights(table, 1e-3)
    expected = torch.tensor([[0.5, 0.5, 0], [0.5, 0, 0.5], [1 / 3] * 3], dtype=DOUBLE)
    assert_equal(weights.models, expected)
    assert_equal(weights.clients, torch.tensor([0.5, 0.5, 0], dtype=DOUBLE))


def test_with_endless_smoothness_all_count_alike():
    weights = set_weights(GOLDEN, 1e9)
    assert_equal(weights.clients, torch.full((CLIENTS,), 1 / CLIENTS, dtype=DOUBLE), 1e-8)
    assert_equal(weights.models, torch.full((CLIENTS, MODELS), 1 / MODELS, dtype=DOUBLE), 1e-8)


def test_equal_losses_are_split_evenly_whatever_they_are():
    for value in (0.0, 1.7, 1e6):
        weights = set_weights(torch.full((4, 3), value), 0.01)
        assert_equal(weights.gradient, torch.full((4, 3), 1 / 12, dtype=DOUBLE))


def test_with_one_model_clients_count_by_the_softmax_of_their_losses():
    weights = set_weights(GOLDEN[:, :1], 0.3)
    assert_equal(weights.models, torch.ones(CLIENTS, 1, dtype=DOUBLE))
    assert_equal(weights.clients, (GOLDEN[:, 0] / 0.3).softmax(0))


def test_a_client_alone_has_all_the_weight():
    weights = set_weights(GOLDEN[1:2], 0.3)
    assert_equal(weights.clients, torch.ones(1, dtype=DOUBLE))
    assert_equal(weights.models[0], (-GOLDEN[1] / 0.3).softmax(0))


@pytest.mark.parametrize("mu", [1e-4, 1e-3, 1.0])
def test_large_losses_and_little_smoothness_stay_numbers(mu):
    table = GOLDEN * 1e3
    weights = set_weights(table, mu)
    assert bool(torch.isfinite(weights.gradient).all())
    assert float(weights.gradient.sum()) == pytest.approx(1, abs=1e-12)
    assert smooth_objective(table, mu) == pytest.approx(1800, abs=1e-9)
    assert_equal(weights.models[2], torch.tensor([0, 1, 0], dtype=DOUBLE))


def test_losses_in_single_precision_are_weighted_in_double():
    """0.3 / 1e-4 is 3000 nats: single precision is wrong in the fourth digit of a weight there."""
    table = torch.tensor([[0.3, 0.3 + 1e-4], [0.3 + 2e-4, 0.3]])
    weights = set_weights(table, 1e-4)
    assert weights.clients.dtype is weights.models.dtype is DOUBLE
    assert_equal(weights.gradient, set_weights(table.double(), 1e-4).gradient, 0.0)


# Sums and bounds


@given(tables, smoothness)
def test_all_weights_sum_to_one(table, mu):
    weights = set_weights(table, mu)
    ones = torch.ones(len(table), dtype=DOUBLE)
    assert_equal(weights.clients.sum(), ones[0])
    assert_equal(weights.models.sum(1), ones)
    assert_equal(weights.gradient.sum(), ones[0])
    assert float(weights.gradient.min()) >= 0


@given(tables, smoothness)
def test_the_objective_lies_between_its_bounds(table, mu):
    low, high = bounds(table, mu)
    exact = objective(table)
    assert (low, high) == (
        exact - mu * math.log(table.shape[1]),
        exact + mu * math.log(table.shape[0]),
    )
    rounding = 1e-12 * (1 + exact + mu)
    assert low - rounding <= smooth_objective(table, mu) <= high + rounding


def test_both_bounds_are_reached():
    one = torch.full((1, 4), 0.5)
    assert smooth_objective(one, 0.2) == pytest.approx(bounds(one, 0.2)[0])
    many = torch.full((5, 1), 0.5)
    assert smooth_objective(many, 0.2) == pytest.approx(bounds(many, 0.2)[1])


# Symmetries


@given(tables, smoothness, st.randoms(use_true_random=False))
def test_the_order_of_clients_and_models_is_that_of_the_weights(table, mu, random):
    rows, columns = (list(range(size)) for size in table.shape)
    random.shuffle(rows), random.shuffle(columns)
    weights = set_weights(table, mu)
    turned = set_weights(table[rows][:, columns], mu)
    assert_equal(turned.clients, weights.clients[rows])
    assert_equal(turned.models, weights.models[rows][:, columns])


@given(tables, smoothness, st.data())
def test_a_client_that_is_worse_off_with_all_models_counts_more(table, mu, data):
    client = data.draw(st.integers(0, len(table) - 1))
    shift = data.draw(st.floats(0.01, 3)) * mu
    moved = table.clone()
    moved[client] += shift
    before, after = set_weights(table, mu), set_weights(moved, mu)
    assert_equal(after.models, before.models, 1e-9)
    share = float(before.clients[client])
    lifted = share * math.exp(shift / mu)
    assert float(after.clients[client]) == pytest.approx(lifted / (lifted + 1 - share), rel=1e-9)
    assume(1e-9 < share < 1 - 1e-9)
    assert after.clients[client] > before.clients[client]


@given(tables, smoothness)
def test_equal_shares_are_a_smoothness_that_many_times_larger(table, mu):
    clients = len(table)
    shared, whole = set_weights(table / clients, mu), set_weights(table, mu * clients)
    assert_equal(shared.clients, whole.clients, 1e-9)
    assert_equal(shared.models, whole.models, 1e-9)
    expected = smooth_objective(table, mu * clients) / clients
    assert smooth_objective(table / clients, mu) == pytest.approx(expected, rel=1e-9, abs=1e-9)


# One client at a time


def changes_of(clients, models, seed=0, dtype=DOUBLE):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(clients, models, 5, generator=generator, dtype=dtype)
    return [[Params({"encoder.w": change}) for change in row] for row in drawn]


def running(table, mu, changes, order=None):
    step = RunningStep(mu)
    for client in order or range(len(table)):
        step.add(str(client), table[client].tolist(), changes[client])
    return step


def closed_form(table, mu, changes):
    stacked = torch.stack([torch.stack([c["encoder.w"] for c in row]) for row in changes])
    return torch.einsum("ik,ikd->kd", set_weights(table, mu).gradient, stacked.double())


@given(tables, smoothness, st.randoms(use_true_random=False))
def test_the_running_sum_is_the_closed_form_in_any_order(table, mu, random):
    order = list(range(len(table)))
    random.shuffle(order)
    changes = changes_of(*table.shape)
    step = running(table, mu, changes, order)
    found = torch.stack([change["encoder.w"] for change in step.steps])
    assert_equal(found, closed_form(table, mu, changes), 1e-9)
    assert list(step.losses) == list(map(str, order))
    assert torch.equal(step.table, table[order])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("gap", [30.0, 300.0, 3000.0])
def test_needs_that_rise_by_hundreds_of_nats_leave_the_neediest(order, gap):
    table = torch.tensor([[0.0, 1.0], [gap, gap + 1], [2 * gap, 2 * gap + 1]], dtype=DOUBLE)
    changes = changes_of(3, 2)
    step = running(table, 1.0, changes, order)
    found = torch.stack([change["encoder.w"] for change in step.steps])
    assert_equal(found, closed_form(table, 1.0, changes), 1e-12)
    alone = running(table[2:], 1.0, changes[2:])
    neediest = torch.stack([change["encoder.w"] for change in alone.steps])
    assert_equal(found, neediest, 3 * math.exp(-gap) + 1e-12)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_what_underflows_takes_nothing_else_with_it(order):
    """Client 0 and model 1 count for less than a double can say; the others are as they were."""
    table = torch.tensor([[0.0, 9.0], [8.0, 17.0], [8.1, 17.2], [8.05, 17.1]], dtype=DOUBLE)
    changes = changes_of(4, 2, dtype=torch.float32)
    step = running(table, 0.01, changes, order)
    assert bool(torch.equal(step.steps[1]["encoder.w"], torch.zeros(5)))
    expected = closed_form(table[1:], 0.01, changes[1:])
    assert_equal(step.steps[0]["encoder.w"].double(), expected[0], 1e-6)


def test_only_one_sum_per_model_is_kept():
    step = running(GOLDEN, 0.1, changes_of(CLIENTS, MODELS))
    kept = [value for value in vars(step).values() if isinstance(value, list)]
    assert [len(value) for value in kept] == [MODELS]


def test_what_clients_sent_is_not_changed():
    changes = changes_of(2, 3)
    before = [[change["encoder.w"].clone() for change in row] for row in changes]
    running(GOLDEN[:2], 0.1, changes)
    for row, old in zip(changes, before, strict=True):
        assert all(torch.equal(a["encoder.w"], b) for a, b in zip(row, old, strict=True))
