"""From "who gets this example" to "which examples does this client get"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NOBODY = -1


def grouped(holder: NDArray[np.int64], clients: int) -> list[NDArray[np.int64]]:
    """The examples of each client, given the client (or `NOBODY`) of each example."""
    order = np.argsort(holder, kind="stable")
    ends = np.searchsorted(holder[order], np.arange(clients + 1))
    return np.split(order, ends)[1:-1]
