"""The operating points of biometric verification: FMR100, FMR1000, ZeroFMR (Maio et al. 2002).

Each is the lowest false non-match rate (FNMR, here FRR) at a largest false match rate (FMR, here
FAR): 1 %, 0.1 %, and none at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from consort.metrics.biometric import (
    equal_error_threshold,
    error_curve,
    true_acceptance_rate,
)

OPERATING_POINTS = {"FMR100": 0.01, "FMR1000": 0.001, "ZeroFMR": 0.0}
"""The largest false match rate of each point."""
EER = "EER"
RULES = (EER, *OPERATING_POINTS)
"""The names of the rules by which `threshold_by` chooses."""


def fnmr_at_fmr(genuine: ArrayLike, forged: ArrayLike, fmr: float) -> float:
    """The lowest false non-match rate whose false match rate does not exceed `fmr`.

    Args:
        genuine: The scores of genuine samples.
        forged: The scores of impostors or forgeries.
        fmr: The largest permitted false match rate, from 0 to 1.
    """
    return 1 - true_acceptance_rate(genuine, forged, fmr)


def threshold_at_fmr(genuine: ArrayLike, forged: ArrayLike, fmr: float) -> float:
    """The lowest threshold whose false match rate does not exceed `fmr`.

    Args:
        genuine: The scores of genuine samples.
        forged: The scores of impostors or forgeries.
        fmr: The largest permitted false match rate, from 0 to 1.

    Returns:
        The threshold, always finite: if every score is exceeded by a forgery, a little more than
        the highest score of a forgery.
    """
    curve = error_curve(genuine, forged)
    return finite(float(curve.thresholds[curve.far <= fmr].min()), forged)


def threshold_by(rule: str, genuine: ArrayLike, forged: ArrayLike) -> float:
    """The threshold that a rule chooses.

    Args:
        rule: One of `RULES`.
        genuine: The scores of genuine samples.
        forged: The scores of impostors or forgeries.

    Returns:
        The threshold, always finite.
    """
    if rule == EER:
        return finite(equal_error_threshold(genuine, forged), forged)
    return threshold_at_fmr(genuine, forged, OPERATING_POINTS[rule])


def finite(threshold: float, forged: ArrayLike) -> float:
    """A `threshold` as it is, or a little more than the highest score of `forged` if infinite."""
    if not np.isinf(threshold):
        return threshold
    return float(np.nextafter(np.max(np.asarray(forged, dtype=np.float64)), np.inf))
