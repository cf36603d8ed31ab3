from __future__ import annotations

import pytest
import torch

from consort.errors import UsageError
from consort.models.mlp import Mlp
from consort.models.registry import parameter_count


def test_layers_are_affine_maps_with_relu():
    model = Mlp(6, (5, 4))
    inputs = torch.randn(3, 2, 3)
    first, second = model.layers
    hidden = (inputs.reshape(3, 6) @ first.weight.T + first.bias).clamp(min=0)
    expected = (hidden @ second.weight.T + second.bias).clamp(min=0)
    torch.testing.assert_close(model(inputs), expected)
    assert model.width == 4


def test_without_hidden_layers_the_features_are_the_flattened_input():
    model = Mlp(12, ())
    inputs = torch.randn(5, 3, 2, 2)
    assert torch.equal(model(inputs), inputs.reshape(5, 12))
    assert model.width == 12
    assert parameter_count(model) == 0


def test_parameter_count_is_that_of_the_two_layer_net_of_mcmahan():
    assert parameter_count(Mlp(784, (200, 200))) == 199_210 - (200 * 10 + 10)


def test_measure_counts_the_numbers_of_any_example():
    assert Mlp.measure(torch.zeros(3, 4, 5)) == 60


def test_token_ids_are_refused():
    with pytest.raises(UsageError, match="floating-point"):
        Mlp.measure(torch.zeros(20, dtype=torch.int64))
