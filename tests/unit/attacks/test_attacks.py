"""Attacks find what is there to be found, and nothing where there is nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import linear_examples, tiny_member
from torch import nn
from torch.nn import functional as F

from consort.attacks.imprint import Imprint, imprinted, laplace_cutoffs
from consort.attacks.information import entropy, mutual_information
from consort.attacks.inversion import cosine, invert, total_variation
from consort.attacks.membership import (
    auc_interval,
    auc_standard_error,
    best_threshold,
    evaluate_attack,
    likelihood_ratio,
    log_odds,
    losses,
    within_class,
)
from consort.attacks.rescale import rescaled
from consort.attacks.similarity import EXACT, matched, similarity
from consort.domains.fingerprints.obfuscation import FpDfsn
from consort.models.registry import build

SHAPE = (1, 8, 8)


def pictures(count: int) -> torch.Tensor:
    """Textures of rising brightness, 0.1 to 0.9."""
    levels = torch.linspace(0.1, 0.9, count)[:, None, None, None]
    return (levels + 0.1 * (torch.rand(count, *SHAPE) - 0.5)).clamp(0, 1)


def gradients_through(imprint: Imprint, inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a client that trains a model behind the layer would send of the layer."""
    model = nn.Sequential(imprint, nn.Flatten(), nn.Linear(64, 4))
    F.cross_entropy(model(inputs), torch.arange(len(inputs)) % 4).backward()
    return imprint.sort.weight.grad, imprint.sort.bias.grad


def test_pictures_in_bins_of_their_own_are_recovered_exactly():
    originals = pictures(6)
    means = originals.mean((1, 2, 3))
    cutoffs = torch.cat([torch.tensor([-10.0]), (means[1:] + means[:-1]) / 2])
    found = imprinted(*gradients_through(Imprint(SHAPE, cutoffs), originals)).view(-1, *SHAPE)
    places = matched(found, originals)
    assert [original for _, original in places] == [0, 1, 2, 3, 4, 5]
    torch.testing.assert_close(found, originals, atol=1e-4, rtol=0)


def test_pictures_in_one_bin_come_back_as_one_mixture():
    originals = pictures(2)
    (found,) = imprinted(*gradients_through(Imprint(SHAPE, torch.tensor([-10.0])), originals))
    one, other = originals.flatten(1)
    share = ((found - other) @ (one - other)) / (one - other).square().sum()
    torch.testing.assert_close(found, share * one + (1 - share) * other, atol=1e-4, rtol=0)


def test_cutoffs_are_quantiles_of_laplaces_distribution():
    cutoffs = laplace_cutoffs(8, 0.5, 0.1).double()
    expected = torch.distributions.Laplace(0.5, 0.1).icdf(torch.arange(1, 8) / 8).double()
    assert cutoffs[0] == -10
    torch.testing.assert_close(cutoffs[1:], expected, atol=1e-6, rtol=0)


def test_a_single_example_is_recovered_from_its_gradient():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Sigmoid(), nn.Linear(12, 4))
    original, label = pictures(1), torch.tensor([2])

    def gradient(inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        loss = F.cross_entropy(model(inputs), label)
        return torch.autograd.grad(loss, list(model.parameters()), create_graph=True)

    target = [part.detach() for part in gradient(original)]
    found = invert(gradient, target, torch.full_like(original, 0.9), steps=200, smoothness=0.0)
    assert found.cosine > 0.999
    baseline = similarity(torch.full_like(original[0], 0.9), original[0]).psnr
    assert similarity(found.inputs[0], original[0]).psnr > baseline + 10


def test_cosine_and_total_variation():
    one, other = [torch.tensor([3.0, 0.0]), torch.tensor([4.0])], [torch.ones(2), torch.ones(1)]
    assert cosine(one, other).item() == pytest.approx(7 / (5 * math.sqrt(3)))
    stripes = torch.tensor([0.0, 1.0]).repeat(1, 1, 4, 2)
    assert total_variation(stripes).item() == 1.0
    assert total_variation(torch.rand(3, 8)).item() == 0.0


def test_recovered_pictures_are_matched_with_the_least_error_in_all():
    originals = torch.tensor([0.0, 0.4, 1.0])[:, None, None, None].expand(3, 1, 2, 2)
    found = torch.tensor([0.9, 0.25])[:, None, None, None].expand(2, 1, 2, 2)
    assert matched(found, originals) == [(0, 2), (1, 1)]


def test_similarity_of_pictures():
    black, grey = torch.zeros(1, 16, 16), torch.full((1, 16, 16), 0.1)
    assert similarity(black, black)[:3] == (0.0, EXACT, 1.0)
    assert (
        similarity(black, grey, lambda one, other: (other - one).max().item()).lpips == grey.max()
    )
    mse, psnr, ssim, lpips = similarity(black, grey)
    assert math.isnan(lpips)  # nobody gave its weights
    assert (mse, psnr) == (pytest.approx(0.01), pytest.approx(20.0))
    assert ssim == pytest.approx(0.01**2 / (0.1**2 + 0.01**2), rel=1e-5)
    assert math.isnan(similarity(torch.zeros(1, 4, 4), torch.zeros(1, 4, 4)).ssim)


def test_members_that_stand_out_are_told_and_others_are_not():
    certain = evaluate_attack(np.full(20, 2.0), np.full(20, 1.0))
    assert (certain.auc, certain.advantage, certain.interval[1]) == (1.0, 1.0, 1.0)
    assert certain.is_conclusive
    alike = evaluate_attack(np.arange(40.0), np.arange(40.0))
    assert alike.auc == 0.5
    assert abs(alike.advantage) < 0.1


def test_threshold_and_error():
    assert best_threshold(np.array([1.0, 3.0, 4.0]), np.array([0.0, 2.0])) == 3.0
    q1, q2 = 0.8 / 1.2, 2 * 0.64 / 1.8
    expected = (0.16 + 6.5 * (q1 - 0.64) + 6.5 * (q2 - 0.64)) / 50  # (10 + 5) / 2 - 1
    assert auc_standard_error(np.array([0.8]), 10, 5) == pytest.approx([math.sqrt(expected)])


@given(st.floats(0, 1), st.integers(2, 60), st.integers(2, 60))
def test_an_interval_ends_where_the_area_is_196_errors_away(auc, members, others):
    low, high = auc_interval(auc, members, others)
    assert 0 <= low <= auc <= high <= 1
    for end in (low, high):
        away = abs(end - auc) - 1.96 * auc_standard_error(np.array([end]), members, others)[0]
        assert away == pytest.approx(0, abs=0.02) or end == auc in (0, 1)
    mirrored = auc_interval(1 - auc, members, others)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=2e-4)


def test_few_examples_that_are_told_apart_perfectly_tell_nothing():
    few = evaluate_attack(np.full(4, 2.0), np.full(4, 1.0))
    assert few.auc == 1.0
    assert not few.is_conclusive
    assert few.interval[0] < 0.5  # two against two: so much happens by chance one time in six
    many = evaluate_attack(np.full(400, 2.0), np.full(400, 1.0))
    assert many.interval[0] > 0.97


def test_an_interval_holds_the_area_as_often_as_it_says():
    rng, hits = np.random.default_rng(0), 0
    for _ in range(400):
        members, others = rng.normal(1.0, size=12), rng.normal(size=12)
        low, high = auc_interval(float((members[:, None] > others).mean()), 12, 12)
        hits += low <= 0.76025 <= high  # the normal distribution at 1 / sqrt(2)
    assert 0.93 <= hits / 400 <= 0.99


def test_scores_within_a_class_forget_how_hard_the_class_is():
    labels = np.array([0, 0, 1, 1, 2])
    known = np.array([True, False, True, False, False])
    scores = within_class(np.array([1.0, 2.0, 11.0, 13.0, 7.0]), labels, known)
    assert scores.tolist() == [0.0, 1.0, 0.0, 2.0, 1.0]  # of class 2 nothing is known: 7 - 6


def test_sureness_is_the_logarithm_of_the_odds():
    chances = np.array([0.1, 0.5, 0.99])
    assert log_odds(-np.log(chances)) == pytest.approx(np.log(chances / (1 - chances)))
    assert np.isfinite(log_odds(np.array([0.0, 1e-300, 1e4]))).all()


def test_shadow_models_take_away_how_hard_an_example_is():
    hardness = np.linspace(0.1, 3, 40)
    shadows = [hardness * factor for factor in (0.9, 1.1)]
    members, others = likelihood_ratio(hardness * 0.7, shadows), likelihood_ratio(hardness, shadows)
    assert evaluate_attack(members, others).auc == 1.0
    assert evaluate_attack(-hardness * 0.7, -hardness).auc < 0.8
    assert others == pytest.approx(np.zeros(40), abs=0.02)


def test_losses_of_single_examples_have_the_loss_of_the_batch_as_their_mean():
    member = tiny_member("c0")
    model = build(member.model, member.tasks, member.example, 0, "average")
    examples = linear_examples("some", 7)
    found = losses(model, member.tasks, examples)
    whole = F.cross_entropy(model(examples.inputs)["classify"], examples.targets["classify"])
    assert found.shape == (7,)
    assert found.mean() == pytest.approx(whole.item(), rel=1e-5)
    assert losses(model, member.tasks, examples.rows(3, 1)) == pytest.approx(found[3:4], rel=1e-5)


def test_entropy_is_in_bits():
    assert entropy(np.arange(256.0)) == 8.0
    assert entropy(np.repeat([0.0, 1.0], 50)) == 1.0
    assert entropy(np.ones(9)) == 0.0


def test_mutual_information_of_copies_and_of_strangers():
    rng = np.random.default_rng(0)
    images = rng.random((2000, 1, 1))
    copies, strangers = images.reshape(-1, 1), rng.random((2000, 1))
    assert mutual_information(images, copies, rng) == pytest.approx(5.0, abs=0.45)
    assert mutual_information(images, strangers, rng) == pytest.approx(0.0, abs=0.05)


def test_a_division_undoes_obfuscation_but_for_the_noise():
    images = torch.rand(2, 1, 24, 24)
    torch.testing.assert_close(rescaled(FpDfsn(beta=0.5, sigma=0.0)(images, 0), 0.5), images)
    assert torch.equal(rescaled(images, 1.0), images)
