"""What holds for all encoders of signatures, whatever they are made of."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from consort.errors import UsageError
from consort.models.layers import padded, shrunk, thinned
from consort.models.registry import ModelSpec, build
from consort.tasks import Classification

SMALL_IMAGES = {
    "signet": {"stride": 2},
    "signet_s": {"stride": 2},
    "octconvnet": {},
    "vitsignet": {"depth": 2},
    "vitsignet32": {"depth": 2},
    "htcsignet": {"depth": 2, "stride": 1},
}
SHAPES = [(1, 64, 96), (1, 75, 110), (1, 112, 112), (3, 57, 130)]


def thin(name: str, shape: tuple[int, ...] = (1, 64, 96), scale: float = 0.1) -> nn.Module:
    table = {"name": name, "scale": scale, "features": 32, **SMALL_IMAGES[name]}
    model = build(ModelSpec.of(table), {"a": Classification(3)}, torch.zeros(shape), seed=1)
    return model.encoder


def pictures(count: int, shape: tuple[int, ...] = (1, 64, 96)) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(5))


def settled(model: nn.Module, shape: tuple[int, ...] = (1, 64, 96)) -> nn.Module:
    """In testing mode, with running statistics that are not those it was made with."""
    model.train()
    with torch.no_grad():
        model(pictures(8, shape))
    return model.eval()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [0.01, 0.1])
@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_features_are_equally_many_at_every_resolution_and_scale(name, scale, shape):
    model = thin(name, shape, scale)
    features = model(pictures(3, shape))
    assert features.shape == (3, model.width) == (3, 32)
    assert features.isfinite().all()


@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_the_published_size_has_2048_features_for_images_of_224_pixels(name):
    spec = ModelSpec.of({"name": name})
    with torch.device("meta"):
        encoder = build(spec, {"a": Classification(3)}, torch.zeros(1, 224, 224), seed=1).encoder
        assert encoder(torch.zeros(2, 1, 224, 224)).shape == (2, 2048)
    assert encoder.width == 2048


@pytest.mark.parametrize("shape", SHAPES[:2])
@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_gradients_reach_every_parameter(name, shape):
    model = thin(name, shape)
    params = dict(model.named_parameters())
    loss = (model(pictures(6, shape)) * torch.randn(6, 32)).sum()
    for parameter, grad in zip(params, torch.autograd.grad(loss, params.values()), strict=True):
        assert grad.any(), parameter
        assert grad.isfinite().all(), parameter


@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_testing_is_deterministic_and_changes_nothing(name):
    model = settled(thin(name))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    features = model(pictures(4))
    assert torch.equal(features, model(pictures(4)))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert not torch.equal(features[0], features[1])


@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_a_single_image_has_the_features_it_has_among_others(name):
    model = settled(thin(name))
    torch.testing.assert_close(model(pictures(4)[2:3]), model(pictures(4))[2:3], atol=1e-5, rtol=0)


@pytest.mark.parametrize("shape", [(1, 64, 96), (3, 75, 110)])
@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_the_layout_of_memory_makes_no_difference(name, shape):
    model = settled(thin(name, shape), shape)
    images = pictures(4, shape)
    plain = model(images)
    model = model.to(memory_format=torch.channels_last)
    last = model(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(last, plain, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_all_features_are_normalised_in_training_and_none_is_negative(name):
    """The last things are BatchNorm and ReLU, so about half of the features are above nought."""
    features = thin(name)(pictures(16))
    assert features.min() == 0
    assert 0.3 < (features > 0).float().mean() < 0.7


@pytest.mark.parametrize("name", SMALL_IMAGES)
def test_scale_thins_the_model_but_not_its_features(name):
    def parameters(**options: float) -> int:
        with torch.device("meta"):
            spec = ModelSpec.of({"name": name, **options})
            encoder = build(spec, {}, torch.zeros(1, 112, 112), seed=1).encoder
        assert encoder.width == options.get("features", 2048)
        return sum(parameter.numel() for parameter in encoder.parameters())

    full = parameters()
    assert parameters(scale=0.25) < full / 3
    assert parameters(scale=0.25, features=256) < parameters(scale=0.25)


@pytest.mark.parametrize("name", SMALL_IMAGES)
@pytest.mark.parametrize("example", [torch.zeros(64, 96), torch.zeros(1, 64, 96).byte()])
def test_what_is_no_floating_point_image_is_refused(name, example):
    with pytest.raises(UsageError, match="channels x height x width"):
        build(ModelSpec.of({"name": name}), {}, example, seed=1)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "signet", "scale": 0}, "scale = 0: input should be greater than 0"),
        ({"name": "octconvnet", "features": 0}, "features = 0: input should be greater than 0"),
        ({"name": "vitsignet", "depth": 1.5}, "depth = 1.5: input should be a valid integer"),
        ({"name": "octconvnet", "bias": True}, "no option 'bias'"),
        ({"name": "signet_s", "maps": [1]}, "no option 'maps'"),
    ],
)
def test_wrong_options_are_refused(table, words):
    with pytest.raises(UsageError) as caught:
        ModelSpec.of(table)
    assert words in str(caught.value)


# Layers


@pytest.mark.parametrize(("full", "scale", "width"), [(96, 1, 96), (96, 0.25, 24), (4, 1e-6, 1)])
def test_a_thinned_layer_has_at_least_one_unit(full, scale, width):
    assert thinned(full, scale) == width


@pytest.mark.parametrize("side", range(5, 30))
@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (5, 2), (5, 3)])
def test_sides_shrink_as_convolutions_shrink_them(side, kernel, stride):
    maps = nn.Conv2d(1, 1, kernel, stride)(torch.zeros(1, 1, side, kernel))
    assert shrunk(side, kernel, stride) == maps.shape[2]


def test_padding_is_blank_and_at_the_right_and_below():
    images = torch.ones(2, 1, 3, 5)
    result = padded(images, 4)
    assert result.shape == (2, 1, 4, 8)
    assert torch.equal(result[..., :3, :5], images)
    assert result.sum() == images.sum()
    assert padded(result, 4) is result
