"""Membership inference: was an example used for training, judged by the loss of a model on it."""

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
"""The smallest number of examples of each kind with which an attack can be computed."""
ENOUGH = 10
"""The smallest number of evaluated examples of each kind for a conclusive result: with fewer,
guessing alone gives an AUC anywhere between 0.26 and 0.74.
"""
_NORMAL = 1.96
"""The number of standard errors on either side that contain 95 % of a normal distribution."""
_LEAST = 1e-12
"""The smallest loss that is used; a loss of 0 would give infinite log odds."""


@dataclass(frozen=True)
class Membership:
    """How well an attack separates members of the training data from other examples.

    The threshold is chosen on one half of the examples and evaluated on the other.
    """

    auc: float
    """The probability that a member has a higher score than a non-member: 0.5 is chance."""
    interval: tuple[float, float]
    """The 95 % confidence interval of `auc`."""
    advantage: float
    """True positive rate minus false positive rate: 0 is chance, 1 is certainty."""
    members: int
    others: int
    """The numbers of members and of non-members that were evaluated."""

    @property
    def is_conclusive(self) -> bool:
        """Whether there were enough examples for a conclusive result."""
        return min(self.members, self.others) >= ENOUGH


def evaluate_attack(members: Scores, others: Scores) -> Membership:
    """Evaluates scores that are high for members.

    The threshold is chosen on the examples at even positions and evaluated on the others.

    Args:
        members: Scores of training examples.
        others: Scores of examples that were not trained on.
    """
    known, judged = (members[::2], others[::2]), (members[1::2], others[1::2])
    threshold = best_threshold(*known)
    found, wrong = (float(np.mean(scores >= threshold)) for scores in judged)
    auc = area_under_curve(*judged)
    sizes = (len(judged[0]), len(judged[1]))
    return Membership(auc, auc_interval(auc, *sizes), found - wrong, *sizes)


def best_threshold(members: Scores, others: Scores) -> float:
    """The lowest threshold with the largest difference between the two shares that reach it."""
    candidates = np.unique(np.concatenate([members, others, [np.inf]]))
    gains = [np.mean(members >= edge) - np.mean(others >= edge) for edge in candidates]
    return float(candidates[int(np.argmax(gains))])


def auc_interval(auc: float, members: int, others: int) -> tuple[float, float]:
    """The 95 % confidence interval of an AUC.

    Newcombe: Confidence intervals for an effect size measure based on the Mann-Whitney statistic,
    Part 2, Statistics in Medicine 25, 2006, Method 5. Unlike an interval from the standard error,
    it has a positive width even if a few examples happen to be separated perfectly.

    Args:
        auc: The observed area under the curve.
        members: The number of members.
        others: The number of other examples.
    """
    areas = np.linspace(0, 1, 10_001)
    errors = _NORMAL * auc_standard_error(areas, members, others)
    possible = areas[np.abs(areas - auc) <= errors + _LEAST]
    return float(min(possible[0], auc)), float(max(possible[-1], auc))


def auc_standard_error(areas: Scores, members: int, others: int) -> Scores:
    """Hanley and McNeil's standard errors of AUCs, in the form that Newcombe's method uses.

    Args:
        areas: The AUCs.
        members: The number of members.
        others: The number of other examples.
    """
    more = (members + others) / 2 - 1
    shape = 1 + more * (1 - areas) / (2 - areas) + more * areas / (1 + areas)
    errors: Scores = np.sqrt(areas * (1 - areas) * shape / (members * others))
    return errors


def within_class(scores: Scores, labels: NDArray[np.int64], known: NDArray[np.bool_]) -> Scores:
    """Scores relative to the mean of their class, so that one threshold fits all classes.

    Args:
        scores: The score of every example.
        labels: The class of every example.
        known: Which examples the means are computed from.
    """
    found: Scores = scores - scores[known].mean()
    for label in np.unique(labels):
        alike = labels == label
        if (alike & known).any():
            found[alike] = scores[alike] - scores[alike & known].mean()
    return found


def likelihood_ratio(losses: Scores, shadows: Sequence[Scores]) -> Scores:
    """The offline LiRA score: how much more confident a model is than models that never saw them.

    Carlini, Chien, Nasr, Song, Terzis and Tramer: Membership Inference Attacks From First
    Principles, S&P 2022; with one standard deviation for all examples, as they advise for few
    models.

    Args:
        losses: The losses of the attacked model.
        shadows: The losses of each shadow model on the same examples.
    """
    unseen = np.mean([log_odds(shadow) for shadow in shadows], axis=0)
    scores: Scores = log_odds(losses) - unseen
    return scores


def log_odds(losses: Scores) -> Scores:
    """The log odds log(p / (1 - p)) of losses -log p."""
    positive = np.maximum(losses, _LEAST)
    odds: Scores = -(positive + np.log(-np.expm1(-positive)))
    return odds


@torch.inference_mode()
def losses(model: MultiTaskModel, tasks: Mapping[str, Task], examples: Examples) -> Scores:
    """The loss of every single example, summed over all tasks.

    Args:
        model: The model.
        tasks: The tasks.
        examples: The examples.

    Returns:
        One loss per example; NaN where it has no labels.
    """
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
