from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from consort.errors import UsageError
from consort.models.cnn4 import Cnn4
from consort.models.registry import parameter_count
from consort.tasks import Classification


@pytest.mark.parametrize(("classes", "parameters"), [(10, 878_538), (100, 924_708)])
def test_parameters_with_a_head_are_those_of_pfllib_on_cifar(classes, parameters):
    encoder = Cnn4((3, 32, 32))
    head = Classification(classes).head(encoder.width)
    assert parameter_count(encoder) + parameter_count(head) == parameters


@pytest.mark.parametrize(
    ("shape", "flattened"), [((1, 28, 28), 1024), ((3, 32, 32), 1600), ((3, 64, 64), 10_816)]
)
def test_flattened_maps_have_the_published_sizes(shape, flattened):
    assert Cnn4(shape).linear.in_features == flattened


def textbook(model: Cnn4, images: torch.Tensor) -> torch.Tensor:
    maps = F.max_pool2d(F.relu(model.conv1(images)), 2)
    maps = F.max_pool2d(F.relu(model.conv2(maps)), 2)
    return F.relu(model.linear(maps.flatten(1)))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_pooling_first_changes_no_bit_of_features_and_gradients(memory_format):
    torch.manual_seed(1)
    model = Cnn4((3, 22, 25)).to(memory_format=memory_format)
    images = torch.rand(4, 3, 22, 25)
    images[:, :, :12] = 0.5  # equal neighbours: the maximum of a window is not unique
    images = images.contiguous(memory_format=memory_format)
    weights = torch.randn(4, 512)
    params = list(model.parameters())
    ours, theirs = model(images), textbook(model, images)
    assert torch.equal(ours, theirs)
    our_grads = torch.autograd.grad((ours * weights).sum(), params)
    their_grads = torch.autograd.grad((theirs * weights).sum(), params)
    assert all(map(torch.equal, our_grads, their_grads))
    assert all(grad.any() for grad in our_grads)


def test_scale_thins_every_layer_but_leaves_one_feature():
    model = Cnn4((1, 28, 28), scale=0.25)
    assert (model.conv1.out_channels, model.conv2.out_channels, model.width) == (8, 16, 128)
    assert model(torch.rand(2, 1, 28, 28)).shape == (2, 128)
    assert Cnn4((1, 28, 28), scale=1e-6).width == 1


def test_the_smallest_image_has_sixteen_pixels_a_side():
    assert Cnn4((1, 16, 40))(torch.rand(2, 1, 16, 40)).shape == (2, 512)
    with pytest.raises(UsageError, match="at least 16x16"):
        Cnn4((1, 40, 15))


def test_fewer_pixels_would_leave_nothing_to_pool():
    maps = nn.Sequential(nn.Conv2d(1, 1, 5), nn.MaxPool2d(2), nn.Conv2d(1, 1, 5), nn.MaxPool2d(2))
    with pytest.raises(RuntimeError):
        maps(torch.rand(1, 1, 15, 15))
    assert maps(torch.rand(1, 1, 16, 16)).shape == (1, 1, 1, 1)


@pytest.mark.parametrize(
    "example",
    [torch.zeros(200, dtype=torch.int64), torch.zeros(28, 28), torch.zeros(3, 32, 32).byte()],
)
def test_what_is_no_floating_point_image_is_refused(example):
    with pytest.raises(UsageError, match="channels x height x width"):
        Cnn4.measure(example)
