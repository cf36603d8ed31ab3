from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from consort.domains.signatures.models.octconv import OctConv, OctConvNet
from consort.models.registry import parameter_count

BOTH = {"high": 3, "low": 2}


def convolved(maps: Tensor, weight: Tensor) -> Tensor:
    """A 3x3 convolution with a border of zeros, as loops."""
    count, channels, height, width = maps.shape
    result = torch.zeros(count, len(weight), height, width)
    for image, end, y, x in product(*map(range, result.shape)):
        for start, dy, dx in product(range(channels), (-1, 0, 1), (-1, 0, 1)):
            if 0 <= y + dy < height and 0 <= x + dx < width:
                value = maps[image, start, y + dy, x + dx]
                result[image, end, y, x] += value * weight[end, start, dy + 1, dx + 1]
    return result


def halved(maps: Tensor) -> Tensor:
    count, channels, height, width = maps.shape
    result = torch.zeros(count, channels, height // 2, width // 2)
    for image, channel, y, x in product(*map(range, result.shape)):
        square = maps[image, channel, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
        result[image, channel, y, x] = square.sum() / 4
    return result


def doubled(maps: Tensor) -> Tensor:
    count, channels, height, width = maps.shape
    result = torch.zeros(count, channels, 2 * height, 2 * width)
    for image, channel, y, x in product(*map(range, result.shape)):
        result[image, channel, y, x] = maps[image, channel, y // 2, x // 2]
    return result


def normed(maps: Tensor) -> Tensor:
    """BatchNorm in training, then ReLU."""
    mean = maps.mean((0, 2, 3), keepdim=True)
    variance = ((maps - mean) ** 2).mean((0, 2, 3), keepdim=True)
    return ((maps - mean) / (variance + 1e-5).sqrt()).clamp(min=0)


def test_a_case_that_can_be_done_in_the_head():
    layer = OctConv({"high": 1, "low": 1}, {"high": 1, "low": 1}).eval()
    for path in layer.paths.values():
        path.weight.data.fill_(1)
    for norm in layer.norms.values():
        norm.eps = 0.0
    maps = {"high": torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), "low": torch.tensor([[[[10.0]]]])}
    found = layer(maps)
    assert torch.equal(found["high"], torch.full((1, 1, 2, 2), 1 + 2 + 3 + 4 + 10.0))
    assert torch.equal(found["low"], torch.full((1, 1, 1, 1), 10 + (1 + 2 + 3 + 4) / 4))


@pytest.mark.parametrize("outputs", [{"high": 2, "low": 3}, {"high": 2}])
@pytest.mark.parametrize("inputs", [BOTH, {"high": 3}])
def test_maps_are_those_of_loops(inputs, outputs):
    layer = OctConv(inputs, outputs)
    sizes = {"high": (4, 6), "low": (2, 3)}
    maps = {kind: torch.randn(2, count, *sizes[kind]) for kind, count in inputs.items()}
    weights = {name: path.weight.detach() for name, path in layer.paths.items()}
    expected = {"high": convolved(maps["high"], weights["high_to_high"])}
    if "low" in inputs:
        expected["high"] += doubled(convolved(maps["low"], weights["low_to_high"]))
    if "low" in outputs:
        expected["low"] = convolved(halved(maps["high"]), weights["high_to_low"])
        if "low" in inputs:
            expected["low"] += convolved(maps["low"], weights["low_to_low"])
    found = layer(maps)
    assert found.keys() == outputs.keys()
    for kind, part in found.items():
        torch.testing.assert_close(part, normed(expected[kind]), atol=1e-5, rtol=0)


def test_parameters_are_nearly_all_in_the_full_layers():
    with torch.device("meta"):
        model = OctConvNet((1, 224, 224))
    first = 9 * 1 * (8 + 8) + 2 * (8 + 8)
    second = 9 * (8 + 8) * (4 + 4) + 2 * (4 + 4)
    third = 9 * (4 + 4) * 4 + 2 * 4
    full = 4 * 56 * 56 * 6400 + 2 * 6400 + 6400 * 2048 + 2 * 2048
    assert parameter_count(model.first) == first
    assert parameter_count(model.second) == second
    assert parameter_count(model.third) == third
    assert model.layers[0][0].in_features == 12_544
    assert parameter_count(model) == first + second + third + full == 93_407_336


def test_maps_have_the_published_sizes():
    with torch.device("meta"):
        model = OctConvNet((1, 224, 224))
        maps = model.first({"high": torch.zeros(2, 1, 224, 224)})
    assert {kind: part.shape for kind, part in maps.items()} == {
        "high": (2, 8, 224, 224),
        "low": (2, 8, 112, 112),
    }


@pytest.mark.parametrize(("height", "width"), [(75, 110), (57, 8), (1, 1)])
def test_odd_images_have_the_features_of_images_with_a_blank_margin(height, width):
    whole = (-(-height // 8) * 8, -(-width // 8) * 8)
    model = OctConvNet((1, height, width), scale=0.25, features=16)
    same = OctConvNet((1, *whole), scale=0.25, features=16)
    same.load_state_dict(model.state_dict())
    images = torch.zeros(3, 1, *whole)
    images[..., :height, :width] = torch.rand(3, 1, height, width)
    assert torch.equal(model(images[..., :height, :width]), same(images))


def test_network_is_octave_layers_with_pools_of_two_between():
    model = OctConvNet((1, 8, 16), scale=0.5, features=6)
    images = torch.rand(4, 1, 8, 16)
    maps = {"high": images}
    for layer in (model.first, model.second, model.third):
        maps = layer(maps)
        if layer is not model.third:
            maps = {k: m.unfold(2, 2, 2).unfold(3, 2, 2).amax((-1, -2)) for k, m in maps.items()}
    features = maps["high"].reshape(4, -1)
    for layer in model.layers:
        features = features @ layer[0].weight.T
        mean, variance = features.mean(0), features.var(0, unbiased=False)
        features = ((features - mean) / (variance + 1e-5).sqrt()).clamp(min=0)
    torch.testing.assert_close(model(images), features, atol=1e-4, rtol=0)
