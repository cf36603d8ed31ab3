"""Knowledge distillation between two models of the same tasks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from torch import Tensor
from torch.nn import functional as F

from consort.core.params import has_role
from consort.training.objectives import Adjust
from consort.training.optimizers import clip_by_norm


def divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """The mean Kullback-Leibler divergence KL(teacher || student) of the predicted classes.

    Args:
        student: The student's logits: one per class, or a single one per example for two classes.
        teacher: The teacher's logits, through which no gradient flows.

    Returns:
        The mean over the examples.
    """
    if student.ndim == 1:
        student, teacher = (F.pad(logit[:, None], (0, 1)) for logit in (student, teacher))
    known = F.log_softmax(teacher.detach(), 1)
    return (known.exp() * (known - F.log_softmax(student, 1))).sum(1).mean()


def clip_apart(limit: float, *roles: str) -> Adjust:
    """Clips the gradients of several parts of a model separately.

    Args:
        limit: The largest norm of each part's gradient.
        *roles: The roles that make up a part each; all other parameters are one further part.

    Returns:
        A function for `LocalTraining.run(adjust=...)`.
    """

    def adjust(names: Sequence[str], _: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor]:
        clipped = list(grads)
        owners = [next((role for role in roles if has_role(n, role)), "") for n in names]
        for owner in set(owners):
            mine = [other == owner for other in owners]
            places = list(compress(range(len(grads)), mine))
            for place, grad in zip(
                places, clip_by_norm([grads[i] for i in places], limit), strict=True
            ):
                clipped[place] = grad
        return clipped

    return adjust
