"""Calibration of decisions on a client's validation signatures: method, threshold, error rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consort.core.randomness import derive
from consort.data.examples import Examples, Splits
from consort.domains.signatures.enrolment import machine
from consort.domains.signatures.tasks import claimed_user
from consort.domains.signatures.writer_dependent import Features, Signatures
from consort.errors import Failure
from consort.metrics.biometric import Scores, equal_error_rate, error_curve
from consort.metrics.intervals import Interval, clopper_pearson, rate_over_users
from consort.metrics.operating_points import finite, threshold_by
from consort.use.features import Apply, features_and_logits

MOST_REFERENCES = 12
COSINE, SVM, FUSED = "cosine", "svm", "fused"
METHODS = (COSINE, SVM, FUSED)
GENUINE, SKILLED, RANDOM = "genuine", "skilled", "random"
DRAWS = 3
"""How often references are drawn."""
_WEIGHTS = (0.25, 0.5, 1.0)
Trials = dict[str, list[list[float]]]
"""By kind of signature: rows of the user's number and the score."""
Calibration = Mapping[str, Mapping[str, Trials]]
"""Trials by method and by the number of references."""


@dataclass(frozen=True)
class StatedRate:
    """A share of wrong decisions on validation data, with a 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.1%} (95 %: {100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Chosen:
    """A threshold, and its error rates on the signatures by which it was chosen."""

    threshold: float
    rates: dict[str, StatedRate]
    """False rejections by `genuine`, false acceptances by kind of forgery."""

    @property
    def far(self) -> float:
        """The false acceptance rate among the forgeries by which the threshold was chosen."""
        return self.rates[SKILLED if SKILLED in self.rates else RANDOM].value

    @property
    def frr(self) -> float:
        """The false rejection rate."""
        return self.rates[GENUINE].value


def similarity(references: Features, queries: Features) -> Scores:
    """The cosine similarity between each query and the reference that is most similar to it.

    Args:
        references: Features of genuine signatures, one row each.
        queries: Features of the signatures to score, one row each.
    """
    nearest: Scores = (_directions(queries) @ _directions(references).T).max(axis=1)
    return nearest


def _directions(features: Features) -> NDArray[np.float64]:
    rows = features.astype(np.float64)
    lengths: NDArray[np.float64] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, 1e-12)


def calibration_scores(
    apply: Apply, data: Splits, background: Features, views: int, detector: int = -1
) -> tuple[dict[str, dict[str, Trials]], list[float] | None]:
    """Scores of a client's validation signatures against references from its training data.

    Args:
        apply: The model.
        data: The client's data.
        background: Features of other people.
        views: The number of views that are averaged.
        detector: The place of the detection head among the outputs.

    Returns:
        Trials by method and number of references, up to the number that some user has; and the
        factors of the score and of the detection head in the fused score, if there are forgeries.
    """
    known, _ = _signatures(apply, data.train, views, detector)
    asked, logits = _signatures(apply, data.validation, views, detector)
    found: dict[str, dict[str, Trials]] = {COSINE: {}, SVM: {}}
    detected: dict[str, Trials] = {}
    for count in range(1, MOST_REFERENCES + 1):
        trials = _trials(known, asked, logits, background, count)
        if trials[COSINE].get(GENUINE) and len(trials[COSINE]) > 1:
            detected[str(count)] = trials.pop("detector")
            for method, one in trials.items():
                found[method][str(count)] = one
    fusion = _fusion(found[SVM], detected)
    if fusion:
        found[FUSED] = {
            count: _fused(found[SVM][count], detected[count], fusion) for count in detected
        }
    return found, fusion


def _signatures(
    apply: Apply, examples: Examples, views: int, detector: int
) -> tuple[Signatures, NDArray[np.float64]]:
    if not len(examples):
        empty = np.empty(0)
        return Signatures(np.empty((0, 0)), empty.astype(np.int64), empty.astype(bool)), empty
    features, logits = features_and_logits(apply, examples.tensor, views, detector)
    users = claimed_user(examples.targets["identify"]).numpy()
    return Signatures(features, users, examples.targets["detect"].bool().numpy()), logits


def _trials(
    known: Signatures,
    asked: Signatures,
    logits: NDArray[np.float64],
    background: Features,
    count: int,
) -> dict[str, Trials]:
    rng = np.random.default_rng(derive(0, "calibration", count))
    found: dict[str, Trials] = {COSINE: {}, SVM: {}, "detector": {}}
    for user in np.unique(known.users):
        own, is_user = known.of(user, True), asked.users == user
        kinds = {
            GENUINE: is_user & asked.genuine,
            SKILLED: is_user & ~asked.genuine,
            RANDOM: ~is_user & asked.genuine,
        }
        for _ in range(DRAWS if len(own) >= count else 0):
            references = own[rng.choice(len(own), count, replace=False)]
            svm = machine(references, background)
            scores = {
                COSINE: similarity(references, asked.features),
                SVM: svm.scores(references, background, asked.features),
                "detector": logits,
            }
            for method, one in scores.items():
                for kind, rows in kinds.items():
                    new = [[float(user), float(score)] for score in one[rows]]
                    if new:
                        found[method].setdefault(kind, []).extend(new)
    return found


def _fusion(scores: Mapping[str, Trials], detected: Mapping[str, Trials]) -> list[float] | None:
    """The factors that give the lowest EER with the most references, after equalising spreads."""
    if not detected:
        return None
    count = max(detected, key=int)
    if SKILLED not in scores[count]:
        return None
    spreads = [
        float(np.std(np.concatenate([scores_of(part[count], kind) for kind in (GENUINE, SKILLED)])))
        for part in (scores, detected)
    ]
    own, other = (1 / max(spread, 1e-9) for spread in spreads)
    choices = [[own, weight * other] for weight in _WEIGHTS]
    return min(
        choices, key=lambda factors: error_rate(_fused(scores[count], detected[count], factors))
    )


def _fused(scores: Trials, detected: Trials, factors: Sequence[float]) -> Trials:
    own, other = factors
    return {
        kind: [
            [user, own * one + other * two[1]]
            for (user, one), two in zip(rows, detected[kind], strict=True)
        ]
        for kind, rows in scores.items()
    }


def scores_of(trials: Mapping[str, Any], kind: str) -> Scores:
    """The scores of one kind of signature among `trials`."""
    return np.array([row[1] for row in trials.get(kind, [])], dtype=np.float64)


def forgeries_in(trials: Mapping[str, Any]) -> str:
    """The forgeries that decide: skilled ones, or other people's signatures if there are none."""
    return SKILLED if trials.get(SKILLED) else RANDOM


def error_rate(trials: Mapping[str, Any]) -> float:
    """The equal error rate of `trials`."""
    return equal_error_rate(scores_of(trials, GENUINE), scores_of(trials, forgeries_in(trials)))


def trials_with(calibration: Calibration, method: str, references: int) -> Trials:
    """The trials that fit a user.

    Args:
        calibration: All trials.
        method: How signatures are scored.
        references: The number of references of the user; if no calibration was made with so
            many, the one with the most is used.

    Raises:
        Failure: If there are none.
    """
    by_count = calibration.get(method, {})
    counts = [int(count) for count in by_count if int(count) <= references]
    if not counts:
        raise Failure(
            "the client has too few signatures or prints to choose a threshold: it needs a user "
            "with genuine ones for references and for validation, and forgeries or another user"
        )
    return by_count[str(max(counts))]


def best_method(calibration: Calibration, references: int, known: bool) -> str:
    """The method with the lowest equal error rate on validation data.

    Args:
        calibration: All trials.
        references: The number of references of the user.
        known: Whether the client trained with this user. Only then is the detection head
            considered: validation users are known ones, and for others it does harm.
    """
    methods = [COSINE, SVM, *([FUSED] if known and FUSED in calibration else [])]
    return min(methods, key=lambda method: error_rate(trials_with(calibration, method, references)))


def threshold(trials: Mapping[str, Any], far: float | None) -> Chosen:
    """Chooses the lowest score that is accepted.

    Args:
        trials: The trials by which it is chosen.
        far: The largest share of forgeries to accept; `None` chooses the equal error rate.

    Returns:
        The threshold, and its error rates.
    """
    genuine, forged = scores_of(trials, GENUINE), scores_of(trials, forgeries_in(trials))
    if far is None:
        chosen = threshold_by("EER", genuine, forged)
    else:
        curve = error_curve(genuine, forged)
        chosen = finite(float(curve.thresholds[curve.far <= far].min()), forged)
    rates = {kind: _rate(np.array(rows), kind, chosen) for kind, rows in trials.items() if rows}
    return Chosen(chosen, rates)


def _rate(rows: NDArray[np.float64], kind: str, at: float) -> StatedRate:
    """The interval is the wider one at each end: exact, each signature once; or over users."""
    wrong = (rows[:, 1] >= at) == (kind != GENUINE)
    users = np.unique(rows[:, 0])
    counts = [int(wrong[rows[:, 0] == user].sum()) for user in users]
    totals = [int((rows[:, 0] == user).sum()) for user in users]
    exact = clopper_pearson(wrong.sum() / DRAWS, len(rows) / DRAWS)
    over = rate_over_users(counts, totals) or Interval(*exact)
    return StatedRate(float(wrong.mean()), min(exact.low, over.low), max(exact.high, over.high))
