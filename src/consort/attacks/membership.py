"""Whether an example was trained on, guessed from how well a model does on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.data.examples import Examples
from consort.metrics.biometric import area_under_curve
from consort.models.multitask import MultiTaskModel
from consort.tasks import Task
from consort.training.scoring import batch_size

Scores = NDArray[np.float64]
FEWEST = 4
"""Examples of each kind without which nothing can be computed."""
ENOUGH = 10
"""Judged examples of each kind from which on something can be told: with fewer, even chance gives
any AUC from 0.26 to 0.74."""
_NORMAL = 1.96
"""Standard errors to either side of a value that 95 % of samples fall into."""
_LEAST = 1e-12
"""A loss of 0 would be boundless certainty."""


@dataclass(frozen=True)
class Membership:
    """How well members are told from others; half of both chose the threshold."""

    auc: float
    """Probability that a member looks more like one than another example does: 0.5 is chance."""
    interval: tuple[float, float]
    """Where `auc` may lie, 95 times out of 100, for all that so many examples can tell."""
    advantage: float
    """Members found minus others taken for members, in shares: 0 is chance, 1 is certainty."""
    members: int
    others: int
    """Examples of either kind that were judged."""

    @property
    def tells(self) -> bool:
        """Whether there were enough examples for the figures to mean something."""
        return min(self.members, self.others) >= ENOUGH


def tell_members(members: Scores, others: Scores) -> Membership:
    """Judges scores that are high for members: a threshold from even places, rates on odd ones."""
    known, judged = (members[::2], others[::2]), (members[1::2], others[1::2])
    threshold = best_threshold(*known)
    found, wrong = (float(np.mean(scores >= threshold)) for scores in judged)
    auc = area_under_curve(*judged)
    sizes = (len(judged[0]), len(judged[1]))
    return Membership(auc, area_interval(auc, *sizes), found - wrong, *sizes)


def best_threshold(members: Scores, others: Scores) -> float:
    """The lowest score with the largest difference between the shares that reach it."""
    candidates = np.unique(np.concatenate([members, others, [np.inf]]))
    gains = [np.mean(members >= edge) - np.mean(others >= edge) for edge in candidates]
    return float(candidates[int(np.argmax(gains))])


def area_interval(auc: float, members: int, others: int) -> tuple[float, float]:
    """The areas that `auc` is not too far from to come from: 95 % of confidence.

    Newcombe: Confidence intervals for an effect size measure based on the Mann-Whitney statistic,
    Part 2, Statistics in Medicine 25, 2006, Method 5. Unlike a standard error it does not vanish
    where few examples happen to be told apart perfectly.
    """
    areas = np.linspace(0, 1, 10_001)
    errors = _NORMAL * area_error(areas, members, others)
    possible = areas[np.abs(areas - auc) <= errors + _LEAST]
    return float(min(possible[0], auc)), float(max(possible[-1], auc))


def area_error(areas: Scores, members: int, others: int) -> Scores:
    """Hanley and McNeil's standard errors of areas under a curve, as Newcombe's method has them."""
    more = (members + others) / 2 - 1
    shape = 1 + more * (1 - areas) / (2 - areas) + more * areas / (1 + areas)
    errors: Scores = np.sqrt(areas * (1 - areas) * shape / (members * others))
    return errors


def within_class(scores: Scores, labels: NDArray[np.int64], known: NDArray[np.bool_]) -> Scores:
    """Scores minus the mean of the known ones of the same class: a threshold for each class."""
    found: Scores = scores - scores[known].mean()
    for label in np.unique(labels):
        alike = labels == label
        if (alike & known).any():
            found[alike] = scores[alike] - scores[alike & known].mean()
    return found


def likelihood_ratio(losses: Scores, shadows: Sequence[Scores]) -> Scores:
    """How much surer a model is of examples than models that never saw them: offline LiRA.

    Carlini, Chien, Nasr, Song, Terzis and Tramer: Membership Inference Attacks From First
    Principles, S&P 2022; with one deviation for all examples, as they advise for few models.
    """
    strange = np.mean([sureness(shadow) for shadow in shadows], axis=0)
    scores: Scores = sureness(losses) - strange
    return scores


def sureness(losses: Scores) -> Scores:
    """The logarithm of the odds p : 1 - p, if a loss is -log p."""
    positive = np.maximum(losses, _LEAST)
    odds: Scores = -(positive + np.log(-np.expm1(-positive)))
    return odds


@torch.inference_mode()
def losses(model: MultiTaskModel, tasks: Mapping[str, Task], examples: Examples) -> Scores:
    """The loss of every example on its own, all tasks together; NaN where it has none."""
    model.eval()
    found = []
    for batch in examples.batches(batch_size(tasks, examples)):
        outputs = model(batch.inputs, tasks)
        for row in range(len(batch)):
            found.append(_loss(outputs, tasks, batch, row))
    return np.array(found, dtype=np.float64)


def _loss(
    outputs: Mapping[str, Tensor], tasks: Mapping[str, Task], batch: Examples, row: int
) -> float:
    here = slice(row, row + 1)
    return sum(
        task.loss(outputs[name][here], batch.targets[name][here]).item()
        for name, task in tasks.items()
    )
