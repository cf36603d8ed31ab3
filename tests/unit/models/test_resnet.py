from __future__ import annotations

import pytest
import torch

from consort.errors import UsageError
from consort.models.registry import parameter_count
from consort.models.resnet import ResNet
from consort.tasks import Classification


def test_the_default_is_resnet_18():
    encoder = ResNet((3, 224, 224))
    head = Classification(1000).head(encoder.width)
    assert parameter_count(encoder) == 11_176_512
    assert parameter_count(encoder) + parameter_count(head) == 11_689_512


def test_features_are_means_over_a_map_that_the_full_stem_and_three_stages_shrink_32_fold():
    model = ResNet((3, 64, 64), depths=(1, 1, 1, 1), widths=(4, 6, 8, 10)).eval()
    images = torch.rand(2, 3, 64, 64)
    maps = model.network(images).last_hidden_state
    assert maps.shape == (2, 10, 2, 2)
    torch.testing.assert_close(model(images), maps.mean((2, 3)))
    assert model.width == 10


def test_the_small_stem_keeps_the_size_of_images():
    model = ResNet((3, 32, 32), stem="small").eval()
    assert parameter_count(model) == 11_176_512 - 3 * 64 * (7 * 7 - 3 * 3)
    assert model.network.embedder(torch.rand(1, 3, 32, 32)).shape == (1, 64, 32, 32)


def test_the_small_stem_starts_with_the_spread_of_the_other_convolutions():
    torch.manual_seed(0)
    model = ResNet((16, 32, 32), depths=(1,), widths=(64,), stem="small")
    weight = model.network.embedder.embedder.convolution.weight
    assert weight.std().item() == pytest.approx((2 / (64 * 3 * 3)) ** 0.5, rel=0.03)


@pytest.mark.parametrize(("stem", "side"), [("full", 9), ("small", 3)])
def test_the_smallest_images_train_even_one_at_a_time(stem, side):
    options = {"depths": (1, 1), "widths": (4, 8), "stem": stem}
    model = ResNet((1, 1, side), **options)
    model(torch.rand(1, 1, 1, side)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with pytest.raises(UsageError, match=f"larger than {side - 1}x{side - 1}"):
        ResNet((1, side - 1, side - 1), **options)


def test_depths_and_widths_must_agree():
    with pytest.raises(UsageError, match="'depths' and 'widths'"):
        ResNet((3, 64, 64), depths=(1, 1))
