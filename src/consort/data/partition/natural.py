"""Clients as they are: everyone keeps what is theirs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.grouped import NOBODY, grouped
from consort.errors import UsageError


def natural(owners: NDArray[np.int64], clients: int) -> list[NDArray[np.int64]]:
    """One owner per client: those with the most examples, in the order of their numbers."""
    known, sizes = np.unique(owners, return_counts=True)
    if clients > len(known):
        raise UsageError(
            f"clients = {clients}, but the data have {len(known)} owners: lower clients"
        )
    chosen = np.sort(known[np.argsort(-sizes, kind="stable")[:clients]])
    holder = np.where(np.isin(owners, chosen), np.searchsorted(chosen, owners), NOBODY)
    return grouped(holder, clients)
