"""The common step of unlike encoders, by hand."""

from __future__ import annotations

import pytest
import torch

from consort.aggregation.one_encoder import is_one, one_step
from consort.core.params import Params


def vector(*numbers):
    return Params({"w": torch.tensor(numbers)})


START = vector(1.0, 1.0)


def test_it_goes_in_the_direction_of_the_mean_as_far_as_they_mostly_went():
    moved = (one_step(START, [vector(3.0, 0.0), vector(0.0, 4.0)]) - START)["w"]
    torch.testing.assert_close(moved, 3.5 * torch.tensor([0.6, 0.8]))


def test_a_single_update_is_taken_as_it_is_and_updates_that_cancel_are_none():
    there = vector(1.0, 0.0)
    assert one_step(START, [there, -there]).equals(START)
    assert one_step(START, [there]).equals(START + there)


@pytest.mark.parametrize(("last", "expected"), [(1.0, True), (1.5, False)])
def test_encoders_are_one_if_the_last_of_them_is_like_the_first(last, expected):
    assert is_one(iter([START, vector(1.0, 1.0), vector(1.0, last)])) is expected
