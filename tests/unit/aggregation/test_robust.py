"""Robust rules against brute force, against numpy, and against liars."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.aggregation.robust import clipped, krum, krum_scores, median, multi_krum, trimmed_mean
from consort.core.params import Params, mean
from consort.errors import NoReplies, UsageError

numbers = st.floats(-100, 100, width=32)
rows = st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=9)


def params(row) -> Params:
    return Params({"a": torch.tensor(row[:1]), "b.c": torch.tensor([row[1:]])})


def flat(item: Params) -> np.ndarray:
    return torch.cat([tensor.reshape(-1) for tensor in item.values()]).double().numpy()


@given(rows)
def test_the_median_is_that_of_numpy(rows):
    found = flat(median([params(row) for row in rows]))
    assert found == pytest.approx(np.median(np.array(rows), 0), rel=1e-6, abs=1e-6)


@given(rows, st.integers(0, 3))
def test_the_trimmed_mean_is_that_of_sorted_columns(rows, cut):
    items = [params(row) for row in rows]
    if len(rows) <= 2 * cut:
        with pytest.raises(NoReplies, match=f"needs {2 * cut + 1} or more answers"):
            trimmed_mean(items, cut)
        return
    kept = np.sort(np.array(rows), 0)[cut : len(rows) - cut]
    assert flat(trimmed_mean(items, cut)) == pytest.approx(kept.mean(0), rel=1e-5, abs=1e-4)


@given(
    st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=3, max_size=6),
    st.floats(-(2.0**90), 2.0**90, width=32),
)
def test_one_liar_moves_nothing_out_of_the_honest_range(honest, lie):
    items = [params(row) for row in [*honest, [lie, -lie, lie]]]
    low, high = np.min(honest, 0), np.max(honest, 0)
    for found in (flat(median(items)), flat(trimmed_mean(items, 1))):
        assert (found >= low - 1e-4).all()
        assert (found <= high + 1e-4).all()


def test_order_does_not_matter():
    items = [params(row) for row in ([1.0, 2, 3], [4, 4, 4.5], [9, 0, 1], [2, 2, 2], [1, 1, 1])]
    expected = [median(items), trimmed_mean(items, 1), krum(items, 1)]
    for order in permutations(items):
        found = [median(order), trimmed_mean(order, 1), krum(order, 1)]
        assert all(one.equals(other) for one, other in zip(found, expected, strict=True))


def scores_by_hand(vectors: np.ndarray, malicious: int) -> list[float]:
    """Blanchard et al., section 4, word by word."""
    found = []
    for place, vector in enumerate(vectors):
        others = [v for other, v in enumerate(vectors) if other != place]
        squares = sorted(float(((vector - other) ** 2).sum()) for other in others)
        found.append(sum(squares[: len(vectors) - malicious - 2]))
    return found


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=5, max_size=8))
def test_krum_scores_are_the_paper_s(rows):
    items = [params(row) for row in rows]
    expected = scores_by_hand(np.array(rows), 1)
    assert krum_scores(items, 1) == pytest.approx(expected, rel=1e-4, abs=1e-2)
    assert any(krum(items, 1).equals(item) for item in items)


def test_krum_leaves_the_far_ones_out():
    honest = [params([place, 2.0, 3.0]) for place in (0.0, 3.0, 5.0, 6.0, 10.0)]
    liars = [params([50.0, 50, 50]), params([-50.0, 50, 50])]
    items = [honest[0], liars[0], *honest[1:], liars[1]]
    assert krum(items, 2).equals(honest[1])  # 9 + 4 + 9, and the next 1 + 9 + 16
    assert multi_krum(items, 2).equals(mean(honest))
    assert multi_krum(items, 2, chosen=1).equals(krum(items, 2))


def test_krum_needs_enough_answers():
    with pytest.raises(NoReplies, match="Krum against 2 needs 7 or more answers, and there were 6"):
        krum([params([1.0, 2, 3])] * 6, 2)
    with pytest.raises(NoReplies):
        median([])


def test_models_that_differ_cannot_be_combined():
    with pytest.raises(UsageError, match="only one of them has"):
        median([params([1.0, 2, 3]), Params({"a": torch.ones(1)})])


@given(st.lists(numbers, min_size=3, max_size=3), st.floats(0.01, 100))
def test_clipping_keeps_the_direction(row, limit):
    update = params(row)
    found = clipped(update, limit)
    if update.norm() <= limit:
        assert found is update
    else:
        assert found.norm() == pytest.approx(limit, rel=1e-5)
        assert found.dot(update) == pytest.approx(found.norm() * update.norm(), rel=1e-4)


def test_what_is_infinitely_long_is_not_made_harmless():
    assert not math.isfinite(clipped(params([math.inf, 0.0, 0.0]), 1.0).norm())
