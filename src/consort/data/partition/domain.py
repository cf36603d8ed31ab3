"""Feature skew: every client holds examples of one domain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.grouped import grouped
from consort.errors import UsageError


def domain(
    domains: NDArray[np.int64], clients: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Distributes all examples; client i gets domain i modulo the number of domains.

    The examples of a domain are divided evenly among its clients.

    Args:
        domains: The domain of each example.
        clients: The number of clients.
        rng: The source of randomness.

    Returns:
        For each client the positions of its examples.

    Raises:
        UsageError: If there are fewer clients than domains.
    """
    known = np.unique(domains)
    if clients < len(known):
        raise UsageError(f"clients = {clients}, but there are {len(known)} domains: raise clients")
    holder = np.empty_like(domains)
    for position, label in enumerate(known):
        members = rng.permutation(np.flatnonzero(domains == label))
        holders = np.arange(position, clients, len(known))
        holder[members] = holders[np.arange(len(members)) % len(holders)]
    return grouped(holder, clients)
