from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.domains.scenes.metrics.dense import angles, best_f_measure, mean_iou


def test_mean_iou_by_hand():
    """Class 0: 3 of 4, class 1: 1 of 2, and class 2, which never occurs, counts as 0."""
    confusion = torch.tensor([[3, 0, 0], [1, 1, 0], [0, 0, 0]])
    assert mean_iou(confusion) == pytest.approx((3 / 4 + 1 / 2 + 0) / 3)


@given(st.integers(2, 6), st.integers(0, 999))
def test_another_library_finds_the_same_iou(classes, seed):
    from sklearn.metrics import jaccard_score

    generator = torch.Generator().manual_seed(seed)
    truth, found = torch.randint(classes, (2, 60), generator=generator)
    confusion = torch.zeros(classes, classes, dtype=torch.int64)
    for cell in zip(truth, found, strict=True):
        confusion[cell] += 1
    theirs = jaccard_score(
        truth, found, labels=list(range(classes)), average="macro", zero_division=0
    )
    assert mean_iou(confusion) == pytest.approx(theirs)


def test_the_best_f_measure_by_hand():
    counts = torch.tensor([[8, 4], [16, 4], [10, 10]])
    first = 1.3 * 0.5 * 0.8 / (0.3 * 0.5 + 0.8)
    second = 1.3 * 1.0 * 0.4 / (0.3 * 1.0 + 0.4)
    assert best_f_measure(counts, 0.3) == pytest.approx(max(first, second))


def test_nothing_found_or_nothing_there_is_zero():
    assert best_f_measure(torch.zeros(3, 2), 0.3) == 0
    assert best_f_measure(torch.tensor([[0], [5], [0]]), 0.3) == 0


@given(st.floats(0, 180))
def test_angles_are_exact_even_if_they_are_small(degrees):
    turn = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    one = torch.tensor([[1.0, 0, 0]], dtype=torch.float64)
    other = torch.stack([turn.cos(), turn.sin(), torch.zeros_like(turn)])[None]
    assert float(angles(one, other)) == pytest.approx(degrees, abs=1e-9, rel=1e-9)
