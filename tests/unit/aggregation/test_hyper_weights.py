"""Weights that are learnt from how clients go on: slopes and steps."""

from __future__ import annotations

import pytest
import torch

from consort.aggregation.hyper_weights import learnt, slopes

DOUBLE = torch.float64


def products(*rows):
    vectors = torch.tensor(rows, dtype=DOUBLE)
    return {"encoder": vectors @ vectors.T}


def test_a_slope_is_the_negative_product_with_what_was_added():
    found = products([3.0, -1.0], [0.0, 2.0], [1.0, 2.0])
    assert slopes(found, 0) == {"encoder": -1.0}
    assert slopes(found, 1) == {"encoder": -4.0}


def test_as_a_cosine_it_does_not_depend_on_lengths():
    product = torch.tensor([[4.0, -3.0], [-3.0, 9.0]], dtype=DOUBLE)
    assert slopes({"p": product}, 0, cosine=True)["p"] == pytest.approx(0.5)
    assert slopes({"p": product * 1e-9}, 0, cosine=True)["p"] == pytest.approx(0.5)


def test_what_did_not_move_has_no_direction():
    assert slopes({"p": torch.zeros(2, 2, dtype=DOUBLE)}, 0, cosine=True) == {"p": 0.0}


def test_steps_are_those_of_torch_until_they_are_projected():
    weight = torch.tensor([0.5], requires_grad=True, dtype=DOUBLE)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9, weight_decay=0.01)
    weights, speeds = {"p": 0.5}, {"p": 0.0}
    for slope in (-1.0, 0.5, 0.3):
        weight.grad = torch.tensor([slope], dtype=DOUBLE)
        optimizer.step()
        weights, speeds = learnt(weights, speeds, {"p": slope}, 0.1, 0.9, 0.01)
        assert weights["p"] == pytest.approx(weight.item())


@pytest.mark.parametrize(("slope", "bound"), [(-9.0, 1.0), (9.0, 0.0)])
def test_weights_stay_between_zero_and_one(slope, bound):
    weights, _ = learnt({"p": 0.5}, {"p": 0.0}, {"p": slope}, 0.1, 0.9, 0.0)
    assert weights == {"p": bound}
