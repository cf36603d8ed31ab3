"""Image models of `timm` by name, where it is installed."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from consort.core.params import Params
from consort.errors import UsageError
from consort.models.registry import ModelSpec, build
from consort.models.timm import load_weights
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
    with pytest.raises(UsageError, match="timm has no model 'resnet10x': did you mean"):
        build(ModelSpec.of("timm:resnet10x"), TASKS, IMAGE, 0)


@pytest.mark.skipif(timm is not None, reason="timm is installed")
def test_without_the_package_the_extra_is_named():
    with pytest.raises(UsageError, match=r"install it with `pip install 'fedconsort\[timm\]'`"):
        build(ModelSpec.of("timm:resnet10t"), TASKS, IMAGE, 0)


@pytest.mark.parametrize("option", [
    {"pretrained": True}, {"checkpoint_path": "x.pth"}, {"pretrained_cfg": "x.pth"},
    {"pretrained_cfg_overlay": "x.pth"}, {"cache_dir": "x"},
])  # fmt: skip
def test_nothing_is_downloaded_nor_read_unchecked(option):
    (key,) = option
    with pytest.raises(UsageError, match=f"{key} would download weights, or read any file: give"):
        build(ModelSpec.of("timm:resnet10t", **option), TASKS, IMAGE, 0)


def test_weights_come_from_a_file_that_has_them_all(tmp_path):
    network = nn.Linear(3, 2)
    own = {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}
    save_file(own | {"fc.weight": torch.ones(1)}, tmp_path / "own.safetensors")
    load_weights(network, tmp_path / "own.safetensors")
    assert torch.equal(network.weight, own["weight"])
    save_file({"weight": torch.ones(3, 3)}, tmp_path / "other.safetensors")
    for file, message in {
        "other.safetensors": r"has no weights weight of shape \(2, 3\)",
        "own.pth": "weights are read from a .safetensors file",
        "none.safetensors": "cannot be read",
    }.items():
        with pytest.raises(UsageError, match=message):
            load_weights(network, tmp_path / file)
