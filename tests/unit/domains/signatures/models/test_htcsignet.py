from __future__ import annotations

import pytest
import torch
from torch import nn

from consort.domains.signatures.models.htcsignet import HTCSigNet
from consort.errors import UsageError
from consort.models.registry import parameter_count

VIT_B_16 = 85_405_440  # one channel, no head: see test_vitsignet


def small(height: int = 48, width: int = 64, **options) -> HTCSigNet:
    settings = {"scale": 0.1, "features": 12, "depth": 1, "stride": 1, **options}
    return HTCSigNet((1, height, width), **settings)


def seen_by(module: nn.Module) -> list[torch.Tensor]:
    """Everything that the module is given from now on."""
    seen: list[torch.Tensor] = []
    module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].clone()))
    return seen


def test_parameters_at_published_size():
    with torch.device("meta"):
        model = HTCSigNet((1, 224, 224))
    refining = 9 * (1 * 128 + 128 * 64 + 64 * 32) + 2 * (128 + 64 + 32) + (32 + 1)
    halving = (4 * 128 * 128 + 4 * 128) + (4 * 32 * 128 + 4 * 128)
    convolutions = 25 * 128 * 256 + 9 * (256 * 384 + 384 * 384 + 384 * 256)
    branch = 30_080 + convolutions + 2 * (256 + 384 + 384 + 256) + 6400 * 512 + 2 * 512
    fusion = (768 + 512) * 2048 + 2 * 2048
    assert parameter_count(model.transformer) == VIT_B_16
    assert parameter_count(model.branch) == branch
    assert parameter_count(model) == refining + halving + VIT_B_16 + branch + fusion == 95_433_953


def test_maps_have_the_published_sizes():
    with torch.device("meta"):
        model = HTCSigNet((1, 224, 224))
        halved = model.halve1(torch.zeros(2, 128, 224, 224))
        assert halved.shape == model.halve3(torch.zeros(2, 32, 224, 224)).shape
    assert halved.shape == (2, 128, 112, 112)
    sides = []
    for layer in model.branch[:-2]:
        halved = layer(halved)
        sides.append(halved.shape[2])
    assert sides == [112, 55, 26, 12, 12, 12, 12, 5]
    assert halved.shape[1:].numel() == 6400
    assert model.fuse[0].in_features == 1280


def test_the_transformer_sees_the_image_with_what_four_convolutions_add():
    model, images = small().eval(), torch.rand(2, 1, 48, 64)
    seen = seen_by(model.transformer)
    model(images)
    refined = model.conv4(model.conv3(model.conv2(model.conv1(images))))
    torch.testing.assert_close(seen[0], images + refined)
    nn.init.zeros_(model.conv4.weight)
    nn.init.zeros_(model.conv4.bias)
    model(images)
    assert torch.equal(seen[1], images)


def test_the_branch_sees_the_sum_of_the_halved_first_and_third_maps():
    model, images = small().eval(), torch.rand(2, 1, 48, 64)
    seen = seen_by(model.branch)
    model(images)
    first = model.conv1(images)
    third = model.conv3(model.conv2(first))
    torch.testing.assert_close(seen[0], model.halve1(first) + model.halve3(third))
    assert seen[0].shape[2:] == (24, 32)


def test_halving_sees_every_pixel():
    halve = small().halve3
    convolution = halve[1]
    nn.init.zeros_(convolution.weight)
    convolution.weight.data[0] = 1
    maps = torch.rand(1, convolution.in_channels // 4, 4, 6)
    squares = convolution(halve[0](maps))[0, 0]
    expected = maps.sum(1).unfold(1, 2, 2).unfold(2, 2, 2).sum((-1, -2))[0]
    torch.testing.assert_close(squares, expected)


def test_features_come_from_both_sides():
    model, images = small(), torch.rand(6, 1, 48, 64)
    seen = seen_by(model.fuse)
    model(images)
    token, local = seen[0].split([model.transformer.width, 51], 1)
    assert token.std(0).min() > 0
    assert local.std(0).max() > 0
    assert local.min() == 0


def test_odd_images_have_the_features_of_images_with_a_blank_margin():
    model, same = small(75, 110), small(80, 112)
    same.load_state_dict(model.state_dict())
    images = torch.zeros(3, 1, 80, 112)
    images[..., :75, :110] = torch.rand(3, 1, 75, 110)
    assert torch.equal(model(images[..., :75, :110]), same(images))


@pytest.mark.parametrize(("stride", "side"), [(1, 33), (2, 65), (3, 81)])
def test_the_smallest_image_leaves_one_pixel(stride, side):
    model = small(side, side + 20, scale=0.02, stride=stride)
    assert model(torch.rand(2, 1, side, side + 20)).shape == (2, 12)
    with pytest.raises(UsageError, match=f"stride = {stride} .* at least {side}x{side} pixels"):
        small(side + 20, side - 1, stride=stride)
    with pytest.raises(RuntimeError):
        model.branch(torch.rand(2, 8, (side - 1) // 2, 50))
