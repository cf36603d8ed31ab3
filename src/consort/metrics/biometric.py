"""How well scores tell genuine from forged: accepted is what scores at least the threshold.

A score that is not a number counts as the lowest there is.
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
    """Wrong decisions, and how many there were to take; those of several users add up."""

    rejected: int
    """Genuine samples that were not accepted."""
    genuine: int
    accepted: int
    """Forgeries that were accepted."""
    forged: int

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
        """The mean of both rates; the EER, if the thresholds are those of equal errors."""
        return (self.far + self.frr) / 2

    @property
    def recall(self) -> float:
        """The share of genuine samples that are accepted."""
        return 1 - self.frr

    @property
    def precision(self) -> float:
        """The share of accepted samples that are genuine; zero, if nothing was accepted."""
        right = self.genuine - self.rejected
        return right / max(right + self.accepted, 1)


class ErrorCurve(NamedTuple):
    """Error rates at all thresholds that matter, from the highest to the lowest.

    The points of a DET curve are (far, frr), those of a ROC curve (far, tar).
    """

    thresholds: Scores
    far: Scores
    frr: Scores

    @property
    def tar(self) -> Scores:
        """True acceptance rates."""
        return 1 - self.frr


def error_curve(genuine: ArrayLike, forged: ArrayLike) -> ErrorCurve:
    """The rates at infinity, where nothing is accepted, and at every score."""
    own, others = _sorted(genuine), _sorted(forged)
    thresholds = _thresholds(own, others)
    accepted, rejected = _counts(own, others, thresholds)
    return ErrorCurve(thresholds, accepted / len(others), rejected / len(own))


def false_rejection_rate(genuine: ArrayLike, threshold: float) -> float:
    """The share of genuine samples below the threshold."""
    return float(np.mean(_sorted(genuine) < threshold))


def false_acceptance_rate(forged: ArrayLike, threshold: float) -> float:
    """The share of forgeries, skilled or random ones, that reach the threshold."""
    return float(np.mean(_sorted(forged) >= threshold))


def errors_at(genuine: ArrayLike, forged: ArrayLike, threshold: float) -> Errors:
    """The wrong decisions with one threshold."""
    own, others = _sorted(genuine), _sorted(forged)
    rejected, accepted = np.sum(own < threshold), np.sum(others >= threshold)
    return Errors(int(rejected), len(own), int(accepted), len(others))


def equal_error_threshold(genuine: ArrayLike, forged: ArrayLike) -> float:
    """Where the two error rates differ least; the highest, if there are several."""
    own, others = _sorted(genuine), _sorted(forged)
    thresholds = _thresholds(own, others)
    accepted, rejected = _counts(own, others, thresholds)
    gaps = np.abs(accepted * len(own) - rejected * len(others))  # integers: ties stay ties
    return float(thresholds[np.argmin(gaps)])


def equal_errors(genuine: ArrayLike, forged: ArrayLike) -> Errors:
    """The wrong decisions where the two error rates differ least."""
    return errors_at(genuine, forged, equal_error_threshold(genuine, forged))


def equal_error_rate(genuine: ArrayLike, forged: ArrayLike) -> float:
    """EER: the mean of the two error rates where they differ least."""
    return equal_errors(genuine, forged).mean


def equal_errors_of_users(users: Iterable[OfUser]) -> Errors:
    """The same with a threshold for each user, chosen in hindsight; the errors are added up."""
    return reduce(add, (equal_errors(*scores) for scores in users))


def interpolated_equal_error_rate(genuine: ArrayLike, forged: ArrayLike) -> float:
    """Where straight lines between the points of the curve meet far = frr."""
    curve = error_curve(genuine, forged)
    return float(np.interp(0.0, curve.far - curve.frr, curve.far))


def true_acceptance_rate(genuine: ArrayLike, forged: ArrayLike, far: float) -> float:
    """TAR@FAR: at the lowest threshold at which no larger share of the forgeries is accepted."""
    curve = error_curve(genuine, forged)
    return float(curve.tar[curve.far <= far].max(initial=0.0))


def area_under_curve(genuine: ArrayLike, forged: ArrayLike) -> float:
    """AUC: how often a genuine sample scores above a forgery; a tie counts half."""
    own, others = _sorted(genuine), _sorted(forged)
    beaten = np.searchsorted(others, own) + np.searchsorted(others, own, side="right")
    return float(np.mean(beaten)) / (2 * len(others))


def mean_area_under_curve(users: Iterable[OfUser]) -> float:
    """The mean of the users' AUCs."""
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
    """How many forgeries are accepted and how many genuine samples rejected."""
    accepted = len(forged) - np.searchsorted(forged, thresholds)
    return accepted, np.searchsorted(genuine, thresholds)
