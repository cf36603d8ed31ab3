"""Error rates of a verification system that accepts a sample if its score reaches a threshold.

Throughout, `genuine` and `forged` are the scores of genuine samples and of forgeries; a higher
score means more likely genuine, and NaN counts as minus infinity. All functions raise `ValueError`
if there is no genuine or no forged score.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores: TypeAlias = NDArray[np.float64]
OfUser: TypeAlias = tuple[ArrayLike, ArrayLike]
"""The scores of one user's genuine samples, and of the forgeries of them."""


@dataclass(frozen=True)
class Errors:
    """Counts of wrong decisions and of all decisions; the counts of several users can be added."""

    rejected: int
    """Genuine samples that were rejected."""
    genuine: int
    """All genuine samples."""
    accepted: int
    """Forgeries that were accepted."""
    forged: int
    """All forgeries."""

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.rejected + other.rejected,
            self.genuine + other.genuine,
            self.accepted + other.accepted,
            self.forged + other.forged,
        )

    @property
    def frr(self) -> float:
        """False rejection rate: the share of genuine samples that are rejected."""
        return self.rejected / self.genuine

    @property
    def far(self) -> float:
        """False acceptance rate: the share of forgeries that are accepted."""
        return self.accepted / self.forged

    @property
    def mean(self) -> float:
        """The mean of FAR and FRR; at the threshold of equal errors this is the EER."""
        return (self.far + self.frr) / 2

    @property
    def recall(self) -> float:
        """The share of genuine samples that are accepted."""
        return 1 - self.frr

    @property
    def precision(self) -> float:
        """The share of accepted samples that are genuine; 0 if nothing was accepted."""
        right = self.genuine - self.rejected
        return right / max(right + self.accepted, 1)


class ErrorCurve(NamedTuple):
    """Error rates at every distinct score as threshold, from the highest threshold to the lowest.

    The points of a DET curve are (far, frr), those of a ROC curve (far, tar).
    """

    thresholds: Scores
    """Infinity, where nothing is accepted, and then the scores in descending order."""
    far: Scores
    """The false acceptance rate at each threshold."""
    frr: Scores
    """The false rejection rate at each threshold."""

    @property
    def tar(self) -> Scores:
        """The true acceptance rate at each threshold."""
        return 1 - self.frr


def error_curve(genuine: ArrayLike, forged: ArrayLike) -> ErrorCurve:
    """Computes the error rates at infinity, where nothing is accepted, and at every score.

    Args:
        genuine: The scores of genuine samples.
        forged: The scores of forgeries.

    Returns:
        The thresholds with the false acceptance and false rejection rate at each of them.
    """
    own, others = _sorted(genuine), _sorted(forged)
    thresholds = _thresholds(own, others)
    accepted, rejected = _counts(own, others, thresholds)
    return ErrorCurve(thresholds, accepted / len(others), rejected / len(own))


def errors_at(genuine: ArrayLike, forged: ArrayLike, threshold: float) -> Errors:
    """Counts the wrong decisions at one threshold.

    Args:
        genuine: The scores of genuine samples.
        forged: The scores of forgeries.
        threshold: The lowest score that is accepted.

    Returns:
        The counts of wrong decisions and of samples.
    """
    own, others = _sorted(genuine), _sorted(forged)
    rejected, accepted = np.sum(own < threshold), np.sum(others >= threshold)
    return Errors(int(rejected), len(own), int(accepted), len(others))


def equal_error_threshold(genuine: ArrayLike, forged: ArrayLike) -> float:
    """The threshold at which FAR and FRR differ least.

    Args:
        genuine: The scores of genuine samples.
        forged: The scores of forgeries.

    Returns:
        The threshold; the highest one if several are equally good.
    """
    own, others = _sorted(genuine), _sorted(forged)
    thresholds = _thresholds(own, others)
    accepted, rejected = _counts(own, others, thresholds)
    gaps = np.abs(accepted * len(own) - rejected * len(others))  # integers: ties stay ties
    return float(thresholds[np.argmin(gaps)])


def equal_errors(genuine: ArrayLike, forged: ArrayLike) -> Errors:
    """Counts the wrong decisions on `genuine` and `forged` scores at the equal-error threshold."""
    return errors_at(genuine, forged, equal_error_threshold(genuine, forged))


def equal_error_rate(genuine: ArrayLike, forged: ArrayLike) -> float:
    """EER of `genuine` and `forged` scores: the mean of FAR and FRR where they differ least."""
    return equal_errors(genuine, forged).mean


def equal_errors_of_users(users: Iterable[OfUser]) -> Errors:
    """Adds up the errors of several users, each at the equal-error threshold of their own scores.

    Args:
        users: For each user the scores of genuine samples and of forgeries.

    Returns:
        The sum of the users' counts.
    """
    return reduce(add, (equal_errors(*scores) for scores in users))


def true_acceptance_rate(genuine: ArrayLike, forged: ArrayLike, far: float) -> float:
    """TAR@FAR: the highest true acceptance rate whose false acceptance rate does not exceed `far`.

    Args:
        genuine: The scores of genuine samples.
        forged: The scores of forgeries.
        far: The largest permitted false acceptance rate, from 0 to 1.

    Returns:
        The true acceptance rate.
    """
    curve = error_curve(genuine, forged)
    return float(curve.tar[curve.far <= far].max(initial=0.0))


def area_under_curve(genuine: ArrayLike, forged: ArrayLike) -> float:
    """AUC: how often a `genuine` score is higher than a `forged` one; ties count one half."""
    own, others = _sorted(genuine), _sorted(forged)
    beaten = np.searchsorted(others, own) + np.searchsorted(others, own, side="right")
    return float(np.mean(beaten)) / (2 * len(others))


def mean_area_under_curve(users: Iterable[OfUser]) -> float:
    """The mean AUC over `users`, each given as genuine and forged scores."""
    return float(np.mean([area_under_curve(*scores) for scores in users]))


def _sorted(scores: ArrayLike) -> Scores:
    values = np.asarray(scores, dtype=np.float64)
    if not values.size:
        raise ValueError("error rates need at least one genuine and one forged score")
    return np.sort(np.where(np.isnan(values), -np.inf, values))


def _thresholds(genuine: Scores, forged: Scores) -> Scores:
    return np.unique(np.concatenate([genuine, forged, [np.inf]]))[::-1]


def _counts(
    genuine: Scores, forged: Scores, thresholds: Scores
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of accepted forgeries and of rejected genuine samples at each threshold."""
    accepted = len(forged) - np.searchsorted(forged, thresholds)
    return accepted, np.searchsorted(genuine, thresholds)
