"""What differential privacy has cost so far, counted by Opacus."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from consort.core.messages import State
from consort.errors import UsageError

LEDGER = "privacy ledger"
"""Where a client remembers what it has spent: [sampling rate, steps], once for every rate."""


def spend(state: State, rate: float, steps: int) -> None:
    """Writes down that each example was used with this probability in so many steps."""
    ledger: dict[float, int] = dict(state.get(LEDGER, ()))
    ledger[rate] = ledger.get(rate, 0) + steps
    state[LEDGER] = [[used, count] for used, count in sorted(ledger.items())]


@lru_cache(maxsize=4096)
def spent(ledger: Sequence[tuple[float, int]], noise: float, delta: float) -> float:
    """The epsilon of all these steps together, by Rényi differential privacy."""
    if not ledger:
        return 0.0
    counter = accountant()()
    counter.history = [(noise, rate, steps) for rate, steps in ledger]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the best order is at an end: still a valid bound
        return float(counter.get_epsilon(delta, alphas=_ORDERS))


_ORDERS = [1 + x / 20 for x in range(1, 200)] + [*range(11, 64)] + [2.0**x for x in range(6, 16)]


def accountant() -> Any:
    """Opacus's accountant of Rényi differential privacy.

    Raises:
        UsageError: Opacus is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from opacus.accountants import RDPAccountant
    except ImportError as error:
        raise UsageError(
            "[privacy] needs Opacus to count what is spent: pip install 'fedconsort[privacy]'"
        ) from error
    return RDPAccountant
