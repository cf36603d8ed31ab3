"""How alike signatures must be: measured on what a client keeps for choices, before any is used."""

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
"""`{references: {"genuine": scores, "forged": scores}}`."""


def similarity(references: Features, queries: Features) -> NDArray[np.float64]:
    """The cosine between each query and the reference that is nearest to it."""
    nearest: NDArray[np.float64] = (_directions(queries) @ _directions(references).T).max(axis=1)
    return nearest


def _directions(features: Features) -> NDArray[np.float64]:
    rows = features.astype(np.float64)
    lengths: NDArray[np.float64] = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, 1e-12)


def calibrated(model: MultiTaskModel, data: Splits) -> dict[str, dict[str, list[float]]]:
    """Scores of a client's validation signatures against references it trained with.

    By the number of references, as far as there are users with so many. Where nobody is forged,
    the signatures of others stand for forgeries.
    """
    known, asked = signatures_of(model, data.train), signatures_of(model, data.validation)
    found = {}
    for count in range(1, MOST_REFERENCES + 1):
        genuine, forged = _drawn(known, asked, count)
        if genuine and forged:
            found[str(count)] = {"genuine": genuine, "forged": forged}
    return found


def _drawn(known: Signatures, asked: Signatures, count: int) -> tuple[list[float], list[float]]:
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
    """The lowest score to accept, and the errors it made on the calibration's signatures.

    Both kinds of errors are equally frequent, or no larger share than `far` of the forgeries is
    accepted. With more references than anybody had, those with the most decide.
    """
    counts = [int(count) for count in calibration if int(count) <= references]
    if not counts:
        raise Failure(
            "the client had too few signatures to choose a threshold by: it needs a user with "
            "genuine ones to train with and others, and forgeries, for validation"
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
