"""Converts "the client of each example" to "the examples of each client"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NOBODY = -1
"""Marks examples that no client holds."""


def grouped(holder: NDArray[np.int64], clients: int) -> list[NDArray[np.int64]]:
    """Groups the examples by the client that holds them.

    Args:
        holder: The client of each example, or `NOBODY`.
        clients: The number of clients.

    Returns:
        For each client the positions of its examples, in ascending order.
    """
    order = np.argsort(holder, kind="stable")
    ends = np.searchsorted(holder[order], np.arange(clients + 1))
    return np.split(order, ends)[1:-1]
