"""The privacy budget that clients have spent so far, computed by Opacus."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from consort.core.messages import State
from consort.errors import UsageError

LEDGER = "privacy ledger"
"""The entry of a client's state with what it has spent: [sampling rate, steps] for each rate."""


def spend(state: State, rate: float, steps: int) -> None:
    """Adds steps to the ledger of a client.

    Args:
        state: The client's state.
        rate: The probability with which each example was used in a step.
        steps: The number of steps.
    """
    ledger: dict[float, int] = dict(state.get(LEDGER, ()))
    ledger[rate] = ledger.get(rate, 0) + steps
    state[LEDGER] = [[used, count] for used, count in sorted(ledger.items())]


@lru_cache(maxsize=4096)
def spent(ledger: Sequence[tuple[float, int]], noise: float, delta: float) -> float:
    """The epsilon of all steps together, by Rényi differential privacy.

    Args:
        ledger: Sampling rates, with the number of steps at each of them.
        noise: The standard deviation of the noise, in units of the clipping norm.
        delta: The probability with which epsilon may not hold.

    Returns:
        Epsilon; 0 without any steps.
    """
    if not ledger:
        return 0.0
    counter = accountant()()
    counter.history = [(noise, rate, steps) for rate, steps in ledger]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the best order is the first or last: a valid bound
        return float(counter.get_epsilon(delta, alphas=_ORDERS))


_ORDERS = [1 + x / 20 for x in range(1, 200)] + [*range(11, 64)] + [2.0**x for x in range(6, 16)]


def accountant() -> Any:
    """Opacus's accountant of Rényi differential privacy.

    Returns:
        The class.

    Raises:
        UsageError: If Opacus is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise UsageError(
            "[privacy] needs Opacus to compute epsilon: pip install 'fedconsort[privacy]'"
        ) from error
    return RDPAccountant
