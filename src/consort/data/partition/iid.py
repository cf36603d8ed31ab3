"""IID partition: every client gets a random sample of equal size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def iid(examples: int, clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Shuffles all examples and divides them into parts whose sizes differ by at most one.

    Args:
        examples: The number of examples.
        clients: The number of clients.
        rng: The source of randomness.

    Returns:
        For each client the positions of its examples.
    """
    return np.array_split(rng.permutation(np.arange(examples)), clients)
