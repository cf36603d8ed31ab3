"""Natural partition: one client per owner of data, such as a writer or a hospital."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.grouped import NOBODY, grouped
from consort.errors import UsageError


def natural(owners: NDArray[np.int64], clients: int) -> list[NDArray[np.int64]]:
    """Makes one client of each owner; if there are more owners, of those with the most examples.

    Args:
        owners: The owner of each example.
        clients: The number of clients.

    Returns:
        For each client, in the order of the owners' numbers, the positions of its examples.

    Raises:
        UsageError: If there are fewer owners than clients.
    """
    known, sizes = np.unique(owners, return_counts=True)
    if clients > len(known):
        raise UsageError(
            f"clients = {clients}, but the data have {len(known)} owners: lower clients"
        )
    chosen = np.sort(known[np.argsort(-sizes, kind="stable")[:clients]])
    holder = np.where(np.isin(owners, chosen), np.searchsorted(chosen, owners), NOBODY)
    return grouped(holder, clients)
