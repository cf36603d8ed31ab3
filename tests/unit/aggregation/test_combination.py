from __future__ import annotations

import pytest
import torch

from consort.aggregation.combination import Update, combination, inner
from consort.params import Params

BEFORE = Params({"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([[3.0]])})
AFTER = Params({"a": torch.tensor([2.0, 0.0]), "b": torch.tensor([[7.0]])})


def test_an_update_is_the_difference_of_the_names_that_came_back():
    update = Update(BEFORE, AFTER)
    assert Params(dict(update)).equals(AFTER - BEFORE)
    assert list(Update(BEFORE, AFTER.only("b"))) == ["b"]
    assert len(update) == 2


def test_a_combination_is_a_sum_with_factors():
    update = Update(BEFORE, AFTER)
    found = combination([update, BEFORE], [2.0, -0.5])
    torch.testing.assert_close(found["a"], torch.tensor([1.5, -5.0]))
    torch.testing.assert_close(found["b"], torch.tensor([[6.5]]))
    assert BEFORE["a"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="longer"):
        combination([update], [1.0, 2.0])


def test_the_inner_product_runs_over_the_first_ones_names():
    assert inner(BEFORE, AFTER) == BEFORE.dot(AFTER) == 23.0
    assert inner(BEFORE.only("a"), AFTER) == 2.0
