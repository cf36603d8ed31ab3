import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score
from torch import nn

from consort.data.examples import Examples, Splits
from consort.domains.fingerprints.task import (
    Verification,
    VerificationMeter,
    contrastive_loss,
    distance,
    impostor_pairs,
)
from consort.models.multitask import MultiTaskModel
from consort.tasks import Calibrated, Task
from consort.training.scoring import score

TASK = Verification(embedding=3)


def test_it_is_a_task_whose_meter_learns_a_threshold():
    assert isinstance(TASK, Task)
    assert isinstance(TASK.meter(), Calibrated)


def test_contrastive_loss_by_hand():
    distances = torch.tensor([0.5, 0.5, 2.0, 1.0])
    same = torch.tensor([True, False, False, False])
    assert contrastive_loss(distances, same, 1.0).tolist() == [0.25, 0.25, 0.0, 0.0]


def test_gradients_agree_with_finite_differences():
    torch.manual_seed(0)
    output = torch.randn(6, 2, 3, dtype=torch.float64).mul_(0.4).requires_grad_()
    fingers = torch.tensor([0, 1, 1, 2, 3, 3])
    assert torch.autograd.gradcheck(lambda o: TASK.loss(o, fingers), [output])


def test_equal_pictures_have_a_finite_gradient():
    output = torch.zeros(2, 2, 3, requires_grad=True)
    TASK.loss(output, torch.tensor([0, 1])).backward()
    assert output.grad.isfinite().all()


def test_impostors_beyond_the_margin_pull_no_more():
    output = torch.tensor([[[0.0, 0, 0], [0, 0, 0]], [[5.0, 0, 0], [5, 0, 0]]], requires_grad=True)
    loss = TASK.loss(output, torch.tensor([0, 1]))
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-9)
    assert output.grad.abs().max() < 1e-6


def test_loss_by_brute_force():
    torch.manual_seed(0)
    output, fingers = torch.rand(5, 2, 3), torch.tensor([0, 0, 1, 2, 2])
    losses = [(left - right).norm() ** 2 for left, right in output]
    for row in range(5):
        other = (row - 2) % 5
        if fingers[row] != fingers[other]:
            gap = 1 - (output[row, 0] - output[other, 1]).norm()
            losses.append(max(gap, torch.tensor(0.0)) ** 2)
    assert TASK.loss(output, fingers).item() == pytest.approx(torch.stack(losses).mean().item())


def test_a_single_pair_and_pairs_of_one_finger_have_no_impostors():
    output = torch.rand(1, 2, 3)
    expected = (output[0, 0] - output[0, 1]).square().sum().item()
    assert TASK.loss(output, torch.tensor([4])).item() == pytest.approx(expected)
    both = torch.cat([output, output])
    assert TASK.loss(both, torch.tensor([4, 4])).item() == pytest.approx(expected)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 60))
def test_impostor_pairs_are_of_two_fingers_and_come_once(fingers, most):
    fingers = torch.tensor(fingers)
    first, second = impostor_pairs(fingers, most)
    assert (fingers[first] != fingers[second]).all()
    pairs = set(zip(first.tolist(), second.tolist(), strict=True))
    assert len(pairs) == len(first) <= most
    if most >= len(fingers) ** 2:
        assert len(pairs) == int((fingers[:, None] != fingers).sum())


def test_many_fingers_give_as_many_impostors_as_are_tested():
    first, second = impostor_pairs(torch.arange(500))
    assert len(first) == 10_000
    assert len(torch.unique(second - first)) > 15


def measured(meter=None):
    """A meter that has seen two pairs of each of ten fingers, and what it saw."""
    torch.manual_seed(0)
    fingers = torch.arange(10).repeat_interleave(2)
    left = torch.randn(10, 3)[fingers] * 0.8
    output = torch.stack([left, left + 0.5 * torch.randn(20, 3)], dim=1)
    meter = meter or TASK.meter()
    for part in (slice(0, 12), slice(12, 20)):
        meter.update(output[part], fingers[part])
    return meter, output, fingers


def test_metrics_agree_with_sklearn():
    meter, output, fingers = measured()
    found = meter.compute()
    every = torch.cdist(output[:, 0], output[:, 1])
    genuine, impostor = every.diagonal(), every[fingers[:, None] != fingers]
    truth = np.repeat([1, 0], [len(genuine), len(impostor)])
    distances = torch.cat([genuine, impostor]).numpy()
    accepted = distances <= 1
    assert found["accuracy"] == pytest.approx(accuracy_score(truth, accepted))
    assert found["precision"] == pytest.approx(precision_score(truth, accepted))
    assert found["recall"] == pytest.approx(recall_score(truth, accepted))
    assert found["f1"] == pytest.approx(f1_score(truth, accepted))
    assert found["auc"] == pytest.approx(roc_auc_score(truth, -distances))
    losses = genuine.square().mean() + (1 - impostor).clamp(min=0).square().mean()
    assert found["loss"] == pytest.approx(losses.item() / 2, rel=1e-5)
    assert found["tar_at_1permille"] <= found["tar_at_1pct"] <= found["recall"] + 1
    assert not any(name.endswith("validated") for name in found)


def test_a_threshold_from_validation():
    meter, validation = VerificationMeter(1e-6), measured()[0]
    measured(meter)
    assert meter.compute()["accuracy"] < 0.96
    meter.calibrate(validation)
    found = meter.compute()
    genuine, impostor = meter.distances()
    assert found["recall_validated"] == np.mean(genuine <= meter.threshold)
    assert 1 - found["recall_validated"] == pytest.approx(
        np.mean(impostor <= meter.threshold), abs=0.06
    )
    assert found["eer"] == pytest.approx(1 - found["recall_validated"], abs=0.06)


def test_one_finger_alone_has_only_a_recall_and_a_loss():
    meter = TASK.meter()
    meter.update(
        torch.tensor([[[0.0, 0, 0], [0.5, 0, 0]], [[0.0, 0, 0], [2, 0, 0]]]), torch.zeros(2)
    )
    found = meter.compute()
    assert found == {"loss": pytest.approx((0.25 + 4) / 2), "accuracy": 0.5}
    other = measured()[0]
    other.calibrate(meter)
    assert other.threshold is None


def test_embeddings_that_are_no_numbers_are_rejected():
    meter = TASK.meter()
    meter.update(torch.full((4, 2, 3), torch.nan), torch.arange(4))
    assert meter.compute()["recall"] == 0


def test_normalised_embeddings_have_length_one():
    head = Verification(embedding=3, normalised=True).head(8)
    assert torch.allclose(head(torch.randn(5, 8)).norm(dim=-1), torch.ones(5, 2))
    assert head(torch.randn(5, 8)).shape == (5, 2, 3)


def test_both_pictures_go_through_one_layer():
    head, features = TASK.head(8), torch.randn(4, 4)
    one, other = head(torch.cat([features, features], dim=1)).unbind(1)
    assert torch.equal(one, other)
    assert sum(p.numel() for p in head.parameters()) == 4 * 3 + 3


def test_scores_take_the_threshold_of_the_validation_data():
    torch.manual_seed(0)
    model = MultiTaskModel(nn.Flatten(), {"verify": TASK.head(8)})

    def pairs(count):
        return Examples(torch.randn(count, 2, 4), {"verify": torch.arange(count)})

    splits = Splits(pairs(4), pairs(6), pairs(8))
    found = score(model, {"verify": TASK}, splits)
    assert "accuracy_validated" in found["test"]["tasks"]["verify"]
    assert "accuracy_validated" not in found["validation"]["tasks"]["verify"]
    empty = splits.validation.take(torch.arange(0))
    without = score(model, {"verify": TASK}, Splits(splits.train, empty, splits.test))
    assert "accuracy_validated" not in without["test"]["tasks"]["verify"]


def test_distances_are_euclidean():
    one, other = torch.randn(2, 5, 3)
    assert torch.allclose(distance(one, other), (one - other).norm(dim=1))
