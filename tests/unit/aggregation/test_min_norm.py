from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from consort.aggregation.min_norm import gram, grams, min_norm_weights
from consort.core.params import Params
from consort.errors import Failure, NoReplies

DOUBLE = torch.float64

numbers = st.integers(-4, 4)
problems = st.tuples(st.integers(1, 7), st.integers(1, 5)).flatmap(
    lambda shape: st.lists(
        st.lists(numbers, min_size=shape[1], max_size=shape[1]),
        min_size=shape[0],
        max_size=shape[0],
    )
)
"""Up to seven vectors in up to five dimensions, so that many depend on each other."""


def products(vectors):
    rows = torch.tensor(vectors, dtype=DOUBLE)
    return rows @ rows.T


def square(weights, inner):
    return float(weights @ inner @ weights)


def bounds(centre, radius):
    return (centre - radius).clamp(min=0), (centre + radius).clamp(max=1)


def assert_optimal(weights, inner, lower, upper):
    """No way inside the box with sum 1 leads down: the best vertex for the slope is no better."""
    assert float((lower - weights).max()) < 1e-12
    assert float((weights - upper).max()) < 1e-12
    assert abs(float(weights.sum()) - 1) < 1e-12
    slope = inner @ weights
    vertex, rest = lower.clone(), 1 - float(lower.sum())
    for place in slope.argsort().tolist():
        vertex[place] += min(rest, float(upper[place] - lower[place]))
        rest = 1 - float(vertex.sum())
    assert float(slope @ (weights - vertex)) <= 1e-11 * float(inner.abs().max())


@pytest.mark.parametrize(
    ("first", "second", "weight"),
    [
        ([2, 0], [0, 1], 0.8),
        ([1, 0], [3, 0], 0.0),
        ([3, 0], [1, 0], 1.0),
        ([1, 0], [-1, 0], 0.5),
        ([1, 2], [1, 2], 0.5),
        ([0, 0], [0, 0], 0.5),
        ([0, 0], [5, 1], 0.0),
        ([1, 0], [1, 1e-7], 0.5),
    ],
)
def test_the_weight_of_the_second_of_two_vectors(first, second, weight):
    found = min_norm_weights(products([first, second]))
    torch.testing.assert_close(found, torch.tensor([1 - weight, weight], dtype=DOUBLE))


@given(problems)
def test_no_convex_combination_is_shorter(vectors):
    inner = products(vectors)
    weights = min_norm_weights(inner)
    assert_optimal(weights, inner, torch.zeros(len(inner)), torch.ones(len(inner)))


@given(problems)
def test_the_shortest_combination_descends_on_every_vector(vectors):
    inner = products(vectors)
    weights = min_norm_weights(inner)
    assert float((inner @ weights).min()) >= square(weights, inner) - 1e-10 * float(inner.max())


@given(problems, st.floats(0, 1), st.randoms(use_true_random=False))
def test_no_combination_near_a_centre_is_shorter(vectors, radius, random):
    inner = products(vectors)
    shares = torch.tensor([random.choice([0, 1, 2, 9]) for _ in vectors], dtype=DOUBLE)
    shares[0] += 1
    centre = shares / shares.sum()
    weights = min_norm_weights(inner, centre, radius)
    assert_optimal(weights, inner, *bounds(centre, radius))


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=3, max_size=3))
def test_three_vectors_against_all_combinations_of_a_grid(vectors):
    inner = products(vectors)
    steps = torch.linspace(0, 1, 41, dtype=DOUBLE)
    grid = torch.stack([torch.stack([a, b, 1 - a - b]) for a, b in product(steps, steps)])
    grid = grid[grid[:, 2] >= -1e-12]
    squares = torch.einsum("ki,ij,kj->k", grid, inner, grid)
    found = square(min_norm_weights(inner), inner)
    assert found <= float(squares.min()) + 1e-10
    assert float(squares.min()) - found <= 2 * 0.05 * float(inner.abs().max())
    centre = torch.tensor([0.5, 0.25, 0.25], dtype=DOUBLE)
    near = ((grid - centre).abs() <= 0.2 + 1e-12).all(1)
    assert square(min_norm_weights(inner, centre, 0.2), inner) <= float(squares[near].min()) + 1e-10


@given(problems)
def test_another_solver_finds_nothing_shorter(vectors):
    from torchjd.aggregation import MGDA

    rows = torch.tensor(vectors, dtype=DOUBLE)
    theirs = MGDA(epsilon=1e-9, max_iters=2000)(rows)
    ours = min_norm_weights(rows @ rows.T) @ rows
    assert float(ours.square().sum()) <= float(theirs.square().sum()) + 1e-9
    assert float(theirs.square().sum()) <= float(ours.square().sum()) + 0.1


@given(problems, st.sampled_from([1e-30, 1e-8, 3.0, 1e30]))
def test_scale_does_not_matter(vectors, scale):
    inner = products(vectors)
    one, other = min_norm_weights(inner), min_norm_weights(inner * scale)
    assert abs(square(one, inner) - square(other, inner)) <= 1e-10 * float(inner.max())


def test_equal_vectors_share_evenly():
    weights = min_norm_weights(products([[2, 0], [0, 1], [0, 1], [0, 1], [0, 1]]))
    expected = torch.tensor([0.2, 0.2, 0.2, 0.2, 0.2], dtype=DOUBLE)
    torch.testing.assert_close(weights, expected, atol=1e-3, rtol=0)
    torch.testing.assert_close(min_norm_weights(torch.zeros(5, 5)), expected)
    torch.testing.assert_close(min_norm_weights(torch.ones(5, 5)), expected, atol=1e-3, rtol=0)


def test_a_radius_of_zero_is_the_centre_and_of_one_the_simplex():
    inner = products([[2, 0, 1], [0, 1, 1], [-1, 1, 0]])
    centre = torch.tensor([0.7, 0.1, 0.2], dtype=DOUBLE)
    torch.testing.assert_close(min_norm_weights(inner, centre, 0.0), centre)
    torch.testing.assert_close(min_norm_weights(inner, centre, 1.0), min_norm_weights(inner))


def test_the_way_out_of_the_centre_ends_at_the_radius():
    inner = products([[3, 0], [1, 0]])
    centre = torch.tensor([0.5, 0.5], dtype=DOUBLE)
    expected = torch.tensor([0.3, 0.7], dtype=DOUBLE)
    torch.testing.assert_close(min_norm_weights(inner, centre, 0.2), expected)


def test_a_matrix_that_rounding_made_indefinite_has_weights():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 3, generator=generator)
    inner = rows @ rows.T
    assert float(torch.linalg.eigvalsh(inner)[0]) < 0
    weights = min_norm_weights(inner)
    exact = rows.double() @ rows.double().T
    assert square(weights, exact) < 1e-6
    assert abs(float(weights.sum()) - 1) < 1e-12


def test_a_corner_of_the_box_is_found():
    """All weights end at a bound, so none is left to make up for rounding."""
    inner = products([[2], [0.6], [0.5], [7], [0.3], [8], [0.6], [7]])
    centre = torch.full((8,), 1 / 8, dtype=DOUBLE)
    weights = min_norm_weights(inner, centre, 1 / 24)
    assert_optimal(weights, inner, *bounds(centre, 1 / 24))
    assert (weights < 1 / 8).tolist() == [True, False, False, True, False, True, False, True]


def test_only_the_symmetric_part_of_the_matrix_counts():
    inner = products([[2, 0, 1], [0, 1, 1], [-1, 1, 0]])
    skew = torch.tensor([[0, 3, -1], [-3, 0, 2], [1, -2, 0]], dtype=DOUBLE)
    torch.testing.assert_close(min_norm_weights(inner + skew), min_norm_weights(inner))


def test_one_vector_has_all_the_weight():
    assert min_norm_weights(products([[3, 4]])).tolist() == [1.0]


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_inner_products_that_are_no_numbers_are_refused(value):
    with pytest.raises(Failure, match="too large to be compared: lower the learning rate"):
        min_norm_weights(torch.tensor([[value, 0.0], [0.0, 1.0]]))


@pytest.mark.parametrize("count", [3, 13])  # few are compared two by two
def test_inner_products_of_large_vectors_are_exact(count):
    generator = torch.Generator().manual_seed(0)
    vectors = [
        Params({"a": torch.rand(300, 700, generator=generator), "b": torch.rand(7)})
        for _ in range(count)
    ]
    rows = torch.stack([torch.cat([v["a"].flatten(), v["b"]]) for v in vectors]).double()
    torch.testing.assert_close(gram(vectors), rows @ rows.T, rtol=2e-7, atol=0)


def test_vectors_of_sixteen_bits_have_inner_products():
    ones = [{"a": torch.ones(20_000, dtype=torch.bfloat16)}] * 2
    torch.testing.assert_close(
        gram(ones), torch.full((2, 2), 20_000.0, dtype=DOUBLE), rtol=0.01, atol=0
    )


def test_inner_products_do_not_depend_on_threads():
    vectors = [{"a": torch.rand(500_000)} for _ in range(3)]

    def found(threads):
        with threadpool_limits(threads):
            return gram(vectors)

    assert torch.equal(found(1), found(4))


def test_inner_products_of_parts_add_up_to_those_of_the_whole():
    vectors = [Params({"a.x": torch.tensor([1.0, 2.0]), "b.x": torch.tensor([3.0])})] * 2
    found = grams(vectors, lambda name: name[0])
    assert {part: matrix[0, 1].item() for part, matrix in found.items()} == {"a": 5.0, "b": 9.0}
    assert torch.equal(sum(found.values()), gram(vectors))


def test_nobody_has_no_inner_products():
    with pytest.raises(NoReplies):
        gram([])
