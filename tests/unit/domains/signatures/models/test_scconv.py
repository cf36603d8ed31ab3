from __future__ import annotations

from itertools import product

import torch
from torch.nn import functional as F

from consort.domains.signatures.models.scconv import (
    ChannelReconstruction,
    ScConv,
    SpatialReconstruction,
)
from consort.models.registry import parameter_count


def test_spatial_reconstruction_is_that_of_loops():
    unit = SpatialReconstruction(8)
    unit.norm.weight.data = torch.tensor([0.5, -0.4, 1.0, 2.0, 0.1, -1.5, 0.7, 0.3])
    unit.norm.bias.data = torch.linspace(-0.3, 0.4, 8)
    weight, bias = unit.norm.weight.detach(), unit.norm.bias.detach()
    maps = torch.randn(2, 8, 3, 4)
    normed = torch.zeros_like(maps)
    for image, group in product(range(2), range(4)):
        part = maps[image, 2 * group : 2 * group + 2]
        spread = (((part - part.mean()) ** 2).mean() + 1e-5).sqrt()
        for channel in (2 * group, 2 * group + 1):
            scaled = (maps[image, channel] - part.mean()) / spread
            normed[image, channel] = weight[channel] * scaled + bias[channel]
    expected = torch.zeros_like(maps)
    kept = 0
    for image, channel, y, x in product(*map(range, maps.shape)):
        value = normed[image, channel, y, x]
        share = weight[channel] / weight.sum()
        informative = 1 / (1 + torch.exp(-value * share)) >= 0.5
        kept += int(informative)
        place = channel if informative else (channel + 4) % 8  # the other half
        expected[image, place, y, x] += value
    torch.testing.assert_close(unit(maps), expected, atol=1e-5, rtol=0)
    assert 0 < kept < maps.numel()


def test_fresh_spatial_reconstruction_moves_the_negative_values_to_the_other_half():
    unit = SpatialReconstruction(8)
    maps = torch.randn(2, 8, 5, 5)
    normed = F.group_norm(maps, 4)
    positive, negative = normed.clamp(min=0), normed.clamp(max=0)
    torch.testing.assert_close(unit(maps), positive + negative.roll(4, 1))


def test_channel_reconstruction_is_that_of_sums():
    unit = ChannelReconstruction(8)
    maps = torch.randn(2, 8, 3, 4)
    rich = torch.einsum("nchw,ec->nehw", maps[:, :4], unit.squeeze_rich.weight[:, :, 0, 0])
    cheap = torch.einsum("nchw,ec->nehw", maps[:, 4:], unit.squeeze_cheap.weight[:, :, 0, 0])
    windows = F.pad(rich, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1)
    kernels = unit.grouped.weight[:, 0]  # one of the two rich maps feeds each half of the outputs
    grouped = torch.cat(
        [
            torch.einsum("nhwij,eij->nehw", windows[:, half], kernels[4 * half : 4 * half + 4])
            for half in (0, 1)
        ],
        1,
    )
    upper = (
        grouped
        + unit.grouped.bias[:, None, None]
        + torch.einsum("nchw,ec->nehw", rich, unit.pointwise.weight[:, :, 0, 0])
    )
    completed = torch.einsum("nchw,ec->nehw", cheap, unit.completing.weight[:, :, 0, 0])
    lower = torch.cat([completed, cheap], 1)
    means = torch.cat([upper, lower], 1).mean((2, 3))
    shares = torch.exp(means) / torch.exp(means).sum(1, keepdim=True)
    expected = upper * shares[:, :8, None, None] + lower * shares[:, 8:, None, None]
    torch.testing.assert_close(unit(maps), expected, atol=1e-6, rtol=1e-5)


def test_both_together_keep_the_shape_and_have_few_parameters():
    unit = ScConv(128)
    assert unit(torch.randn(2, 128, 5, 7)).shape == (2, 128, 5, 7)
    squeezes = 2 * 64 * 32
    rich = 9 * 32 * 128 // 2 + 128 + 32 * 128
    cheap = 32 * 96
    assert parameter_count(unit) == 2 * 128 + squeezes + rich + cheap == 30_080
    maps = torch.randn(2, 16, 4, 4)
    small = ScConv(16)
    assert torch.equal(small(maps), small[1](small[0](maps)))


def test_a_constant_map_has_no_spread_and_no_trouble():
    result = ScConv(8)(torch.full((1, 8, 1, 1), 3.0))
    assert result.isfinite().all()
