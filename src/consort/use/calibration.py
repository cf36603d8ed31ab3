"""Calibration of the decision threshold on a client's validation signatures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from consort.core.randomness import derive
from consort.data.examples import Splits
from consort.domains.signatures.verification import signatures_of
from consort.domains.signatures.writer_dependent import Features, Signatures
from consort.errors import Failure
from consort.metrics.biometric import Errors, equal_error_threshold, error_curve, errors_at
from consort.models.multitask import MultiTaskModel

MOST_REFERENCES = 12
_DRAWS = 3
Calibration = Mapping[str, Mapping[str, list[float]]]
"""By the number of references: `{"genuine": scores, "forged": scores}`."""


def similarity(references: Features, queries: Features) -> NDArray[np.float64]:
    """The cosine similarity between each query and the reference that is most similar to it.

    Args:
        references: Features of genuine signatures, one row each.
        queries: Features of the signatures to score, one row each.
    """
    nearest: NDArray[np.float64] = (_directions(queries) @ _directions(references).T).max(axis=1)
    return nearest


def _directions(features: Features) -> NDArray[np.float64]:
    rows = features.astype(np.float64)
    lengths: NDArray[np.float64] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, 1e-12)


def calibration_scores(model: MultiTaskModel, data: Splits) -> dict[str, dict[str, list[float]]]:
    """Scores of a client's validation signatures against references from its training data.

    If there are no forgeries, the signatures of other users take their place.

    Args:
        model: The client's model.
        data: The client's data.

    Returns:
        Scores of genuine and forged signatures by the number of references, up to the number
        that some user has.
    """
    known, asked = signatures_of(model, data.train), signatures_of(model, data.validation)
    found = {}
    for count in range(1, MOST_REFERENCES + 1):
        genuine, forged = _scores_with(known, asked, count)
        if genuine and forged:
            found[str(count)] = {"genuine": genuine, "forged": forged}
    return found


def _scores_with(
    known: Signatures, asked: Signatures, count: int
) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(derive(0, "calibration", count))
    genuine: list[float] = []
    forged: list[float] = []
    others = not (~asked.genuine).any()
    for user in np.unique(known.users):
        own, right = known.of(user, True), asked.of(user, True)
        wrong = asked.features[asked.users != user] if others else asked.of(user, False)
        for _ in range(_DRAWS if len(own) >= count else 0):
            references = own[rng.choice(len(own), count, replace=False)]
            genuine += similarity(references, right).tolist() if len(right) else []
            forged += similarity(references, wrong).tolist() if len(wrong) else []
    return genuine, forged


def threshold(calibration: Calibration, references: int, far: float | None) -> tuple[float, Errors]:
    """Chooses the lowest score that is accepted.

    Args:
        calibration: Scores by the number of references.
        references: The number of references of the user; if no calibration was made with so
            many, the one with the most is used.
        far: The largest share of forgeries to accept; `None` chooses the equal error rate.

    Returns:
        The threshold, and its error rates on the calibration signatures.

    Raises:
        Failure: If there are no scores to choose by.
    """
    counts = [int(count) for count in calibration if int(count) <= references]
    if not counts:
        raise Failure(
            "the client has too few signatures to choose a threshold: it needs a user with genuine "
            "signatures in both training and validation data, and forgeries for validation"
        )
    scores = calibration[str(max(counts))]
    genuine, forged = scores["genuine"], scores["forged"]
    if far is None:
        chosen = equal_error_threshold(genuine, forged)
    else:
        curve = error_curve(genuine, forged)
        chosen = float(curve.thresholds[curve.far <= far].min())
    if np.isinf(chosen):
        chosen = float(np.nextafter(max(forged), np.inf))
    return chosen, errors_at(genuine, forged, chosen)
