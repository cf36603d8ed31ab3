from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from torch.func import grad, vmap
from torch.nn import functional as F

from consort.domains.signatures.tasks import (
    Detection,
    Identification,
    area_under_curve,
    claimed_user,
    equal_error_rate,
    identity,
)
from consort.tasks import Task

scores = st.lists(st.integers(-4, 4), min_size=1, max_size=12)


def metered(task, output, target):
    meter = task.meter()
    meter.update(output, target)
    return meter.compute()


def test_both_are_tasks():
    for task in (Identification(3), Detection()):
        assert isinstance(task, Task)
        assert hash(task) == hash(type(task)(*([3] if isinstance(task, Identification) else [])))
    assert (Identification(3).metric, Identification(3).higher_is_better) == ("accuracy", True)
    assert (Detection().metric, Detection().higher_is_better) == ("eer", False)
    assert Identification(3) != Identification(4)


def test_heads_have_the_published_shapes():
    heads = Identification(700).head(2048), Detection().head(2048)
    sizes = [sum(p.numel() for p in head.parameters()) for head in heads]
    assert sizes == [1_434_300, 262_401]
    assert heads[0](torch.zeros(3, 2048)).shape == (3, 700)
    assert heads[1](torch.zeros(3, 2048)).shape == (3,)
    assert heads[1](torch.zeros(1, 2048)).shape == (1,)


@pytest.mark.parametrize("users", [0, -1])
def test_nobody_cannot_be_identified(users):
    with pytest.raises(ValueError, match=f"at least one user, found {users}"):
        Identification(users)


# Whose it is


@given(st.lists(st.tuples(st.integers(0, 700), st.booleans()), min_size=1, max_size=20))
@settings(deadline=None, max_examples=30)
def test_a_target_tells_the_user_and_whether_they_wrote_it(pairs):
    users = torch.tensor([user for user, _ in pairs])
    genuine = torch.tensor([kind for _, kind in pairs])
    for flags in (genuine, genuine.long()):
        target = identity(users, flags)
        assert torch.equal(claimed_user(target), users)
        assert torch.equal(target >= 0, genuine)


def test_the_loss_is_the_mean_over_genuine_signatures():
    output = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), requires_grad=True)
    target = torch.tensor([2, ~2, 0, ~3, 3])
    loss = Identification(4).loss(output, target)
    rows = [0, 2, 4]
    expected = F.cross_entropy(output[rows], target[rows])
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    (found,) = torch.autograd.grad(loss, output)
    (wanted,) = torch.autograd.grad(expected, output)
    assert torch.allclose(found, wanted)
    assert not found[[1, 3]].any()


def test_without_genuine_signatures_loss_and_gradient_are_zero():
    output = torch.randn(3, 4, requires_grad=True)
    loss = Identification(4).loss(output, torch.tensor([~0, ~1, ~1]))
    (gradient,) = torch.autograd.grad(loss, output)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros(3, 4))


def test_one_user_is_identified_at_no_loss():
    assert Identification(1).loss(torch.randn(4, 1), torch.tensor([0, ~0, 0, 0])).item() == 0


def test_losses_can_be_stacked():
    outputs, targets = torch.randn(2, 6, 3), torch.tensor([[0, ~1, 2, 2, ~0, 1], [~0] * 6])
    truths = (targets >= 0).long()
    stacked = vmap(grad(Identification(3).loss))(outputs, targets)
    pairs = zip(outputs, targets, strict=True)
    alone = torch.stack([grad(Identification(3).loss)(*pair) for pair in pairs])
    assert torch.allclose(stacked, alone)
    assert vmap(Detection().loss)(outputs[:, :, 0], truths).isfinite().all()


def test_identification_counts_genuine_signatures():
    output = 3 * F.one_hot(torch.tensor([1, 1, 0, 0]), 2).float()
    metrics = metered(Identification(2), output, torch.tensor([1, ~1, 1, ~0]))
    right, wrong = math.log(1 + math.exp(-3)), math.log(1 + math.exp(3))
    assert metrics["accuracy"] == 0.5
    assert metrics["loss"] == pytest.approx((right + wrong) / 2)


def test_without_genuine_signatures_nothing_is_reported():
    assert metered(Identification(2), torch.zeros(2, 2), torch.tensor([~1, ~0])) == {}


# Whether it is genuine


def test_the_loss_is_the_mean_over_all_signatures():
    loss = Detection().loss(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2
    assert loss.item() == pytest.approx(expected)


def test_detection_reports_all_metrics_and_batches_change_nothing():
    output, target = torch.tensor([3.0, -1.0, 1.0, -2.0, 0.5]), torch.tensor([1, 1, 0, 0, 1])
    whole = metered(Detection(), output, target)
    meter = Detection().meter()
    for rows in ([0, 1, 2], [3, 4]):
        meter.update(output[rows].requires_grad_(), target[rows])
    assert meter.compute() == whole == meter.compute()
    assert whole["accuracy"] == pytest.approx(3 / 5)
    assert whole["auc"] == pytest.approx(4 / 6)
    assert whole["loss"] == pytest.approx(Detection().loss(output, target).item(), rel=1e-6)


@pytest.mark.parametrize("kind", [0, 1])
def test_one_class_has_no_auc_and_no_eer(kind):
    metrics = metered(Detection(), torch.tensor([1.0, -1.0]), torch.full((2,), kind))
    assert metrics.keys() == {"accuracy", "loss"}
    assert metrics["accuracy"] == 0.5


@given(scores, scores)
@settings(deadline=None, max_examples=80)
def test_auc_and_eer_agree_with_scikit_learn(genuine, forged):
    truths, values = [1] * len(genuine) + [0] * len(forged), genuine + forged
    accepted, hits, _ = roc_curve(truths, values, drop_intermediate=False)
    rejected = 1 - hits
    best = np.argmin(np.round(abs(accepted - rejected), 12))
    found = [torch.tensor(part, dtype=torch.float64) for part in (genuine, forged)]
    assert area_under_curve(*found) == pytest.approx(roc_auc_score(truths, values))
    assert equal_error_rate(*found) == pytest.approx((accepted[best] + rejected[best]) / 2)


def test_error_rates_by_hand():
    genuine, forged = torch.tensor([3.0, 4.0, 5.0]), torch.tensor([0.0, 1.0, 2.0])
    assert (equal_error_rate(genuine, forged), area_under_curve(genuine, forged)) == (0, 1)
    assert (equal_error_rate(forged, genuine), area_under_curve(forged, genuine)) == (1, 0)
    assert (equal_error_rate(forged, forged), area_under_curve(forged, forged)) == (0.5, 0.5)
    mixed = torch.tensor([1.5, 3.5, 4.5]), torch.tensor([0.0, 1.0, 4.0])
    assert equal_error_rate(*mixed) == pytest.approx(1 / 3)


@given(scores, scores)
@settings(deadline=None, max_examples=30)
def test_only_the_order_of_scores_counts(genuine, forged):
    plain = [torch.tensor(part, dtype=torch.float64) for part in (genuine, forged)]
    bent = [(part / 3).exp() for part in plain]
    assert area_under_curve(*plain) == area_under_curve(*bent)
    assert equal_error_rate(*plain) == equal_error_rate(*bent)
