"""What uses of training data cost together: epsilon, by Opacus's Rényi accountant."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from consort.core.messages import State
from consort.errors import UsageError
from consort.federation.site import Use

_LEDGER = "privacy ledger"
"""The entry of a client's state in which version 0.1 kept [sampling rate, steps] for each rate."""
_ORDERS = [1 + x / 20 for x in range(1, 200)] + [*range(11, 64)] + [2.0**x for x in range(6, 16)]
_SAMPLED = (1e-3, 100.0)  # noise for which Opacus computes sampling in less than seconds


def spent(uses: Iterable[Use], delta: float) -> float:
    """The epsilon of all uses together: their Rényi divergences are added up at every order.

    Args:
        uses: The uses, whose noise and sampling rates may differ; all must hide the same unit.
        delta: The probability with which epsilon may not hold.

    Returns:
        Epsilon; 0 without any uses, and infinite if nothing is guaranteed.
    """
    found = [use for use in uses if use.count]
    if not found:
        return 0.0
    analysis = accountant()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the best order is the first or last: a valid bound
        total = sum(_curve(use.noise, use.share) * use.count for use in found)
        epsilon, _ = analysis.get_privacy_spent(orders=_ORDERS, rdp=total, delta=delta)
    return math.inf if math.isnan(epsilon) else max(float(epsilon), 0.0)


@lru_cache(maxsize=4096)
def _curve(noise: float, share: float) -> Any:
    """The Rényi divergence of one use at every order.

    Where sampling would take Opacus too long to compute, the divergence without sampling, which is
    never smaller, takes its place: noise may be chosen by a server that wants to stop a client.
    """
    sampled = share if _SAMPLED[0] <= noise <= _SAMPLED[1] else 1.0
    analysis = accountant()
    squarable = 0.0 if noise < 1e-100 else min(noise, 1e100)
    return analysis.compute_rdp(q=sampled, noise_multiplier=squarable, steps=1, orders=_ORDERS)


def for_one_example(use: Use) -> Use:
    """The same use as a guarantee for one example, whatever unit it hides.

    A clipped update with noise hides whether a client takes part at all: the update can change by
    `clip`. One example can change it from one such update to another, by twice as much at most.

    Args:
        use: The use.
    """
    return replace(use, unit="example", noise=use.noise / 2) if use.unit == "client" else use


def earlier(state: State, unit: str, noise: float) -> list[Use]:
    """The uses that a run recorded which version 0.1 began.

    Args:
        state: The client's state.
        unit: What the noise of the run hides.
        noise: The noise of the run.
    """
    return [Use(unit, noise, rate, steps) for rate, steps in state.get(_LEDGER, ())]


def accountant() -> Any:
    """Opacus's analysis of Rényi differential privacy.

    Returns:
        The module.

    Raises:
        UsageError: If Opacus is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus.accountants.analysis import rdp
    except ImportError as error:
        raise UsageError(
            "[privacy] needs Opacus to compute epsilon: pip install 'fedconsort[privacy]'"
        ) from error
    return rdp
