from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from consort.training.distillation import clip_apart, divergence


def logits(*shape, seed=0):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_divergence_of_classes_is_the_mean_over_examples():
    student, teacher = logits(7, 5), logits(7, 5, seed=1)
    expected = F.kl_div(F.log_softmax(student, 1), F.softmax(teacher, 1), reduction="batchmean")
    torch.testing.assert_close(divergence(student, teacher), expected)
    assert float(divergence(student, teacher)) > 0.1
    assert float(divergence(student, student + 3)) == pytest.approx(0, abs=1e-6)


def test_known_values():
    """Probabilities 3/4 and 1/4 against 1/2 each, as two classes and as one logit."""
    certain, unsure = torch.tensor([3.0, 1.0]).log(), torch.zeros(2)
    value = 0.75 * torch.tensor(1.5).log() + 0.25 * torch.tensor(0.5).log()
    torch.testing.assert_close(divergence(unsure[None], certain[None]), value)
    torch.testing.assert_close(divergence(torch.zeros(1), torch.tensor([3.0]).log()), value)


def test_a_single_logit_is_a_coin():
    student, teacher = logits(9), logits(9, seed=1)
    p, q = teacher.sigmoid(), student.sigmoid()
    expected = (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).mean()
    torch.testing.assert_close(divergence(student, teacher), expected)


@pytest.mark.parametrize("shape", [(6, 4), (6,)])
def test_only_the_student_learns(shape):
    student, teacher = (logits(*shape, seed=s).requires_grad_() for s in (0, 1))
    divergence(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad.abs().max() > 1e-3


def test_extreme_logits_are_finite():
    far = torch.tensor([200.0, -200.0])
    assert divergence(far, -far).isfinite()
    assert divergence(far[None], -far[None]).isfinite()


def test_gradients_are_clipped_by_role():
    names = ["encoder.w", "companion.encoder.w", "heads.t.b", "companion.heads.t.b"]
    grads = [torch.tensor([3.0]), torch.tensor([30.0]), torch.tensor([4.0]), torch.tensor([40.0])]
    found = clip_apart(10.0, "companion")(names, grads, grads)
    assert [round(float(g), 4) for g in found] == [3.0, 6.0, 4.0, 8.0]
    assert [float(g) for g in grads] == [3.0, 30.0, 4.0, 40.0]
