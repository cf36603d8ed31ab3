from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from consort.domains.signatures.models.signet import SigNet, SigNetS
from consort.errors import UsageError
from consort.models.registry import parameter_count

SIGNATURE = (1, 224, 224)


def published(kind: type[SigNet] = SigNet, shape=SIGNATURE, **options) -> SigNet:
    with torch.device("meta"):
        return kind(shape, **options)


def test_parameters_are_those_of_sigver():
    assert parameter_count(published()) == 21_035_040


def test_biases_add_one_number_per_unit_as_in_fedmh():
    assert parameter_count(published(bias=True)) == 21_035_040 + 5_472
    assert 96 + 256 + 384 + 384 + 256 + 2048 + 2048 == 5_472


def test_the_smaller_one_lacks_a_convolution_and_a_full_layer():
    fourth = 384 * 384 * 9 + 2 * 384
    seventh = 2048 * 2048 + 2 * 2048
    assert parameter_count(published(SigNetS)) == 21_035_040 - fourth - seventh
    biases = parameter_count(published(SigNetS, bias=True)) - parameter_count(published(SigNetS))
    assert biases == 5_472 - 384 - 2048


@pytest.mark.parametrize(
    ("shape", "sides"),
    [
        ((224, 224), [(54, 54), (26, 26), (26, 26), (12, 12), *[(12, 12)] * 3, (5, 5)]),
        ((150, 220), [(35, 53), (17, 26), (17, 26), (8, 12), *[(8, 12)] * 3, (3, 5)]),
    ],
)
def test_maps_have_the_published_sizes(shape, sides):
    model = published(shape=(1, *shape))
    maps, found = torch.zeros(1, 1, *shape, device="meta"), []
    for layer in model.convolutions:
        maps = layer(maps)
        found.append(tuple(maps.shape[2:]))
    assert found == sides
    height, width = sides[-1]
    assert model.layers[0][0].in_features == 256 * height * width


def textbook(model: SigNet, images: torch.Tensor, pools_after: tuple[int, ...]) -> torch.Tensor:
    """SigNet in plain functions, in testing mode."""
    weights = iter([m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)])
    norms = iter([m for m in model.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)])

    def normed(x: torch.Tensor) -> torch.Tensor:
        norm = next(norms)
        axes = (1, -1, *[1] * (x.ndim - 2))
        mean, var = norm.running_mean.view(axes), norm.running_var.view(axes)
        scaled = (x - mean) / (var + 1e-5).sqrt()
        return (scaled * norm.weight.view(axes) + norm.bias.view(axes)).clamp(min=0)

    maps = images
    settings = [(4, 0), (1, 2), *[(1, 1)] * (max(pools_after) - 2)]
    for number, (stride, padding) in enumerate(settings, 1):
        layer = next(weights)
        maps = normed(F.conv2d(maps, layer.weight, layer.bias, stride, padding))
        if number in pools_after:
            maps = maps.unfold(2, 3, 2).unfold(3, 3, 2).amax((-1, -2))
    features = maps.reshape(len(images), -1)
    for layer in weights:
        features = normed(F.linear(features, layer.weight, layer.bias))
    return features


@pytest.mark.parametrize(("kind", "convolutions"), [(SigNet, 5), (SigNetS, 4)])
@pytest.mark.parametrize("bias", [False, True])
def test_features_are_those_of_plain_functions(kind, convolutions, bias):
    model = kind((2, 75, 110), scale=0.1, features=20, bias=bias)
    model(torch.rand(6, 2, 75, 110))
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.eval()
    images = torch.rand(3, 2, 75, 110)
    expected = textbook(model, images, (1, 2, convolutions))
    torch.testing.assert_close(model(images), expected, atol=1e-4, rtol=1e-4)
    assert expected.any()


def test_scale_thins_every_layer_but_the_last():
    model = SigNet((1, 75, 110), scale=0.25, features=33)
    layers = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert [len(layer.weight) for layer in layers] == [24, 64, 96, 96, 64, 512, 33]
    small = SigNetS((1, 75, 110), scale=0.25, features=33)
    layers = [m for m in small.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert [len(layer.weight) for layer in layers] == [24, 64, 96, 64, 33]


@pytest.mark.parametrize(("stride", "side"), [(4, 67), (3, 53), (2, 39), (1, 25)])
def test_the_smallest_image_leaves_one_pixel(stride, side):
    model = SigNet((1, side, side + 9), scale=0.02, features=5, stride=stride)
    assert model.convolutions(torch.rand(2, 1, side, side + 9)).shape[2] == 1
    assert model(torch.rand(2, 1, side, side + 9)).shape == (2, 5)
    with pytest.raises(RuntimeError):
        model.convolutions(torch.rand(2, 1, side - 1, side + 9))
    with pytest.raises(UsageError, match=f"stride = {stride} .* at least {side}x{side} pixels"):
        SigNet((1, side + 9, side - 1), stride=stride)
