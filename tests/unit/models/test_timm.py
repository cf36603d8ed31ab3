"""Image models of `timm` by name, where it is installed."""

from __future__ import annotations

import pytest
import torch

from consort.core.params import Params
from consort.errors import UsageError
from consort.models.registry import ModelSpec, build
from consort.tasks import Classification

try:
    import timm
except Exception:  # beside a torch for CPUs only, torchvision cannot be imported
    timm = None

IMAGE = torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(0))
TASKS = {"classify": Classification(3)}


@pytest.mark.skipif(timm is None, reason="timm is not installed")
def test_a_name_makes_an_encoder_under_the_seed():
    spec = ModelSpec.of("timm:resnet10t")
    one, same, other = (Params.of(build(spec, TASKS, IMAGE, seed)) for seed in (1, 1, 2))
    assert one.equals(same)
    assert not one.equals(other)
    assert one.shapes["heads.classify.weight"] == (3, 512)


@pytest.mark.skipif(timm is None, reason="timm is not installed")
def test_an_unknown_name_is_refused():
    with pytest.raises(UsageError, match="timm cannot make 'resnet10x'"):
        build(ModelSpec.of("timm:resnet10x"), TASKS, IMAGE, 0)


@pytest.mark.skipif(timm is not None, reason="timm is installed")
def test_without_the_package_the_extra_is_named():
    with pytest.raises(UsageError, match=r"install it with `pip install 'fedconsort\[timm\]'`"):
        build(ModelSpec.of("timm:resnet10t"), TASKS, IMAGE, 0)


def test_nothing_is_downloaded():
    with pytest.raises(UsageError, match="pretrained = true would download weights: give a local"):
        build(ModelSpec.of("timm:resnet10t", pretrained=True), TASKS, IMAGE, 0)
