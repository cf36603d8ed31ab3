from __future__ import annotations

import pytest
import torch

from consort.domains.scenes.models.backbones import ResNetPyramid
from consort.domains.scenes.models.deeplab import AtrousPyramid, DeepLabV3, DeepLabV3Plus, PlainHead
from consort.domains.scenes.tasks.keypoints import KeyPoints
from consort.domains.scenes.tasks.segmentation import Segmentation
from consort.errors import UsageError
from consort.models.registry import ModelSpec, build, parameter_count

RATES = (12, 24, 36)
R18, R50 = (64, 128, 256, 512), (256, 512, 1024, 2048)


def normed(weights, outputs):
    """A convolution without biases, and BatchNorm."""
    return weights + 2 * outputs


def pyramid(last, c, *, apart):
    through = 9 * last + last * c if apart else 9 * last * c
    return (
        2 * normed(last * c, c)  # pixel by pixel, and as a whole
        + 3 * normed(through, c)
        + normed(5 * c * c, c)
    )


@pytest.mark.parametrize("widths", [R18, R50, (4, 8)])
@pytest.mark.parametrize("c", [256, 16])
def test_sizes_are_those_of_the_formulas(widths, c):
    first, last = widths[0], widths[-1]
    v3 = pyramid(last, c, apart=False) + normed(9 * c * c, c)
    assert parameter_count(DeepLabV3(widths, c, RATES)) == v3
    few = 3 * c // 16
    plus = (
        pyramid(last, c, apart=True)
        + normed(9 * c + c * c, c)
        + normed(first * few, few)
        + normed(9 * (c + few) + (c + few) * c, c)
    )
    assert parameter_count(DeepLabV3Plus(widths, c, RATES)) == plus
    assert parameter_count(PlainHead(c, 21)) == 21 * c + 21


def test_deeplabv3_on_resnet_50_has_the_published_size():
    """torchvision counts 42,004,074 parameters, with an auxiliary head of 1024 channels."""
    encoder = ResNetPyramid((3, 64, 64), depths=(3, 4, 6, 3), widths=R50, layers="bottleneck")
    ours = (encoder, DeepLabV3(R50, 256, RATES), PlainHead(256, 21))
    auxiliary = normed(9 * 1024 * 256, 256) + 21 * 256 + 21
    assert sum(map(parameter_count, ours)) + auxiliary == 42_004_074


@pytest.mark.parametrize("apart", [False, True])
def test_holes_see_pixels_at_their_rate_and_the_whole_is_seen_everywhere(apart):
    torch.manual_seed(0)
    found = AtrousPyramid(2, 4, [3], apart=apart).eval()
    maps = torch.randn(1, 2, 9, 9, requires_grad=True)
    (grad,) = torch.autograd.grad(found.branches[1](maps)[0, :, 4, 4].sum(), maps)
    seen = {tuple(place) for place in grad[0].abs().sum(0).nonzero().tolist()}
    assert seen <= {(down, right) for down in (1, 4, 7) for right in (1, 4, 7)}
    assert len(seen) > 1
    whole = found.branches[2](maps)
    assert whole.shape == (1, 4, 1, 1)
    assert found(maps).shape == (1, 4, 9, 9)


def test_what_is_seen_through_holes_is_what_was_seen():
    """Without strides, a stage finds the same at every second pixel, and more between them."""
    options = {"depths": (1, 1, 2, 2), "widths": (8, 8, 12, 16), "stem": 8}
    for layers in ("basic", "bottleneck"):
        plain = ResNetPyramid((3, 64, 96), layers=layers, **options).double().eval()
        images = torch.randn(2, 3, 64, 96, dtype=torch.float64)
        expected = plain(images)
        for stride in (16, 8):
            dilated = ResNetPyramid((3, 64, 96), layers=layers, stride=stride, **options)
            dilated.load_state_dict(plain.state_dict())
            for number, (before, after) in enumerate(
                zip(expected, dilated.double().eval()(images), strict=True)
            ):
                own = 4 * 2**number
                step = max(1, own // stride)
                assert after.shape[2] == 64 // min(own, stride)
                torch.testing.assert_close(after[:, :, ::step, ::step], before)


def test_plain_heads_agree_with_resizing_first():
    torch.manual_seed(0)
    head, maps = PlainHead(3, 2), torch.randn(1, 3, 5, 7)
    large = torch.nn.functional.interpolate(maps, scale_factor=4, mode="bilinear")
    torch.testing.assert_close(head(maps), head.last(large))


@pytest.mark.parametrize("decoder", ["deeplabv3", "deeplabv3plus"])
def test_every_dense_task_gets_its_outputs(decoder):
    table = {"name": "resnet_pyramid", "depths": [1, 1], "widths": [8, 12], "stem": 8}
    table |= {"channels": 8, "decoder": decoder, "rates": [1, 2], "stride": 8}
    tasks = {"segment": Segmentation(5), "joints": KeyPoints((0.1, 0.1), (1, 0))}
    model = build(ModelSpec.of(table), tasks, torch.zeros(3, 64, 48), 0)
    outputs = model(torch.randn(2, 3, 64, 48))
    assert outputs["segment"].shape == (2, 5, 64, 48)
    assert outputs["joints"].shape == (2, 4, 64, 48)
    assert [name for name, _ in model.heads["segment"].named_parameters()] == [
        "last.weight",
        "last.bias",
    ]


def test_unknown_decoders_and_strides_are_refused():
    with pytest.raises(UsageError, match="deeplabv3"):
        ModelSpec.of({"name": "conv_pyramid", "decoder": "deeplab"})
    with pytest.raises(UsageError, match="stride"):
        ModelSpec.of({"name": "resnet_pyramid", "stride": 4})
