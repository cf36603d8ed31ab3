from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from consort.core.params import Params
from consort.domains.scenes.models.backbones import ResNetPyramid, SwinPyramid
from consort.domains.scenes.models.pyramid import ConvPyramid, PyramidDecoder
from consort.domains.scenes.tasks.geometry import Depth
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.errors import UsageError
from consort.models.registry import ModelSpec, build, parameter_count
from consort.tasks import Classification

EXAMPLE = torch.zeros(3, 64, 64)
TASKS = {"segment": Segmentation(5), "depth": Depth()}
TINY = {"depths": [1, 1], "channels": 8}
TINY_RESNET = {"name": "resnet_pyramid", "widths": [8, 12], "stem": 8, **TINY}
TINY_SWIN = {"name": "swin_pyramid", "embedding": 8, "heads": [1, 2], "window": 4, **TINY}
SMALL = {"name": "conv_pyramid", "widths": [4, 8], "channels": 8}


def made(table, tasks=TASKS, example=EXAMPLE, seed=0):
    return build(ModelSpec.of(table), tasks, example, seed)


def test_the_decoder_has_the_published_size_and_layers():
    decoder = PyramidDecoder([96, 192, 384, 768], 96)
    assert parameter_count(decoder) == 175_776
    layers = {name.rpartition(".")[0] for name, _ in decoder.named_parameters()}
    assert layers == {f"linears.{i}" for i in range(4)} | {"fuse.0", "fuse.1"}
    sizes = [(96, 16), (192, 8), (384, 4), (768, 2)]
    maps = [torch.randn(2, width, size, size) for width, size in sizes]
    assert decoder(maps).shape == (2, 96, 16, 16)


def test_published_encoders_have_their_sizes():
    assert parameter_count(ResNetPyramid((3, 64, 64))) == 11_176_512
    wide = {"widths": (256, 512, 1024, 2048), "layers": "bottleneck"}
    resnet50 = ResNetPyramid((3, 64, 64), depths=(3, 4, 6, 3), **wide)
    assert parameter_count(resnet50) == 23_508_032
    swin = SwinPyramid((3, 64, 64))
    assert swin.widths == (96, 192, 384, 768)
    assert parameter_count(swin) == pytest.approx(27.5e6, rel=0.001)


DEEP = {"decoder": "deeplabv3", "rates": [1, 2]}
DEEPER = {"decoder": "deeplabv3plus", "rates": [1, 2, 3]}
TABLES = [SMALL, TINY_RESNET, TINY_SWIN, SMALL | DEEP, TINY_RESNET | DEEPER, TINY_SWIN | DEEPER]


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t["name"] + t.get("decoder", ""))
def test_every_pixel_gets_an_answer_and_every_parameter_a_role(table):
    model = made(table)
    outputs = model(torch.randn(2, 3, 64, 64))
    assert {name: tuple(out.shape) for name, out in outputs.items()} == {
        "segment": (2, 5, 64, 64),
        "depth": (2, 1, 64, 64),
    }
    maps = model.encoder(torch.randn(2, 3, 64, 64))
    assert [tuple(part.shape[2:]) for part in maps] == [(16, 16), (8, 8)]
    assert [part.shape[1] for part in maps] == list(model.encoder.widths)
    params = Params.of(model).without("buffers")
    for role in ("encoder", "decoders.segment", "decoders.depth", "heads.segment", "heads.depth"):
        assert params.only(role).size > 0
    assert not params.without("encoder", "decoders", "heads")
    sum(out.sum() for out in outputs.values()).backward()
    unused = [name for name, p in model.named_parameters() if p.grad is None]
    assert not unused


def test_decoders_of_a_task_start_alike_for_all_clients_and_unlike_those_of_other_tasks():
    both, one = made(SMALL), made(SMALL, {"depth": Depth()})
    assert Params.of(one).equals(Params.of(both).only("encoder", "decoders.depth", "heads.depth"))
    segment, depth = both.decoders["segment"], both.decoders["depth"]
    assert not torch.equal(segment.linears[0].weight, depth.linears[0].weight)


def test_tasks_and_encoders_must_fit():
    with pytest.raises(UsageError, match=r"'mlp' cannot learn task 'depth'.*conv_pyramid"):
        made({"name": "mlp"}, {"depth": Depth()})
    with pytest.raises(UsageError, match=r"'conv_pyramid' makes feature maps.*'kind'"):
        made(SMALL, {"kind": Classification(3)})


@pytest.mark.parametrize(
    ("table", "shape", "reason"),
    [
        (SMALL, (3, 66, 64), "multiples of 4"),
        (SMALL, (3, 8, 8), "too many stages"),
        (TINY_RESNET, (3, 8, 8), "larger than 8x8"),
        (TINY_RESNET | {"depths": [1]}, (3, 64, 64), "one number per stage"),
        (TINY_RESNET | {"stem": 4}, (3, 64, 64), "'widths' must be 8 or more"),
        (TINY_SWIN | {"heads": [1, 3]}, (3, 64, 64), "multiple of its number of 'heads'"),
        (TINY_RESNET | {"weights": "no such file"}, (3, 64, 64), "no such file"),
    ],
)
def test_what_cannot_be_built_is_explained(table, shape, reason):
    with pytest.raises(UsageError, match=reason):
        made(table, example=torch.zeros(shape))


def test_weights_can_come_from_a_file(tmp_path):
    model = made(TINY_SWIN, seed=1)
    save_file(dict(model.encoder.network.state_dict()), tmp_path / "swin.safetensors")
    loaded = made(TINY_SWIN | {"weights": str(tmp_path / "swin.safetensors")}, seed=2)
    assert Params.of(loaded).only("encoder").equals(Params.of(model).only("encoder"))
    save_file({"strange": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(UsageError, match="other"):
        made(TINY_SWIN | {"weights": str(tmp_path / "other.safetensors")})


def test_the_small_encoder_halves_its_maps():
    maps = ConvPyramid((3, 64, 48), widths=(4, 6, 8))(torch.randn(2, 3, 64, 48))
    assert [tuple(part.shape) for part in maps] == [(2, 4, 16, 12), (2, 6, 8, 6), (2, 8, 4, 3)]
