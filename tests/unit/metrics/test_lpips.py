"""LPIPS against its formula in NumPy, and what holds of any distance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from tests.unit.cli.command import consort

from consort.errors import UsageError
from consort.metrics.lpips import Lpips

WIDTHS, INPUTS, KERNELS = (64, 192, 384, 256, 256), (3, 64, 192, 384, 256), (11, 5, 3, 3, 3)
PLACES, STRIDES, PADDINGS = (0, 3, 6, 8, 10), (4, 1, 1, 1, 1), (2, 2, 1, 1, 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Random weights under the published names, and some that LPIPS does not use."""
    torch.manual_seed(0)
    network = {"classifier.1.weight": torch.ones(2, 2)}
    for place, width, inputs, kernel in zip(PLACES, WIDTHS, INPUTS, KERNELS, strict=True):
        weight = torch.randn(width, inputs, kernel, kernel) / (inputs**0.5 * kernel)
        network |= {f"features.{place}.weight": weight, f"features.{place}.bias": torch.rand(width)}
    channels = {f"lin{n}.model.1.weight": torch.rand(1, w, 1, 1) for n, w in enumerate(WIDTHS)}
    folder = tmp_path_factory.mktemp("weights")
    paths = folder / "alexnet.pth", folder / "alex.pth"
    for path, tensors in zip(paths, (network, channels), strict=True):
        torch.save(tensors, path)
    return paths


@pytest.fixture(scope="module")
def lpips(files):
    return Lpips.load(*files)


def windows(maps, kernel, stride):
    return sliding_window_view(maps, (kernel, kernel), (1, 2))[:, ::stride, ::stride]


def seen(picture, network):
    """Every layer's maps, from the text of the paper and AlexNet's table."""
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    maps = (picture - np.reshape(mean, (3, 1, 1))) / np.reshape(deviation, (3, 1, 1))
    for place, kernel, stride, padding in zip(PLACES, KERNELS, STRIDES, PADDINGS, strict=True):
        if place in (3, 6):
            maps = windows(maps, 3, 2).max((3, 4))
        maps = np.pad(maps, ((0, 0), (padding, padding), (padding, padding)))
        weight, bias = (
            network[f"features.{place}.{k}"].double().numpy() for k in ("weight", "bias")
        )
        summed = np.tensordot(weight, windows(maps, kernel, stride), ((1, 2, 3), (0, 3, 4)))
        maps = np.maximum(summed + bias[:, None, None], 0)
        yield maps / np.sqrt((maps**2).sum(0))


def test_the_formula_of_the_paper(files, lpips):
    one, other = torch.rand(2, 3, 35, 31)
    network, channels = (torch.load(path, weights_only=True) for path in files)
    expected = 0.0
    pairs = zip(*(seen(p.double().numpy(), network) for p in (one, other)), strict=True)
    for layer, (left, right) in enumerate(pairs):
        counts = channels[f"lin{layer}.model.1.weight"].double().numpy()[0]
        expected += (counts * (left - right) ** 2).sum(0).mean()
    assert expected > 0.01
    assert lpips(one, other) == pytest.approx(expected, rel=1e-4)


def test_equal_pictures_are_at_no_distance_and_order_does_not_matter(lpips):
    one, other = torch.rand(2, 3, 32, 32)
    assert lpips(one, one) == 0.0
    assert lpips(one, other) == lpips(other, one) > 0.0
    nearer = lpips(one, 0.95 * one + 0.05 * other)
    assert nearer < lpips(one, 0.5 * one + 0.5 * other)


def test_grey_pictures_are_those_of_three_equal_colours(lpips):
    one, other = torch.rand(2, 1, 32, 32)
    assert lpips(one, other) == lpips(one.expand(3, -1, -1), other.expand(3, -1, -1))


def test_what_is_no_picture_or_too_small_has_no_distance(lpips):
    assert math.isnan(lpips(torch.rand(3, 31, 30), torch.rand(3, 31, 30)))
    assert math.isnan(lpips(torch.rand(40), torch.rand(40)))


def test_files_that_do_not_fit_are_named(files, tmp_path):
    network, channels = files
    with pytest.raises(UsageError, match=r"alex.pth has no tensor features.0.weight of shape 64x3"):
        Lpips.load(channels, network)
    with pytest.raises(UsageError, match=r"alexnet.pth has no tensor lin0.model.1.weight"):
        Lpips.load(network, network)
    (tmp_path / "text").write_text("no weights")
    with pytest.raises(UsageError, match="text is not a file of weights saved by torch"):
        Lpips.load(tmp_path / "text", channels)
    found = consort("audit", tmp_path, "--lpips", tmp_path / "none", channels)
    assert found.code == 2
    assert f"{tmp_path / 'none'} cannot be read: No such file" in " ".join(found.err.split())
