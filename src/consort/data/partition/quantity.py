"""Quantity skew: IID samples of very different sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantity(
    examples: int, clients: int, alpha: float, min_examples: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Distributes all examples: `min_examples` to each client, the rest in Dirichlet proportions.

    Args:
        examples: The number of examples.
        clients: The number of clients.
        alpha: The concentration; the smaller, the fewer clients hold most of the examples.
        min_examples: The smallest number of examples of a client.
        rng: The source of randomness.

    Returns:
        For each client the positions of its examples.
    """
    spare = examples - clients * min_examples
    shares = np.cumsum(rng.dirichlet(np.full(clients, alpha)))
    ends = np.rint(shares * spare).astype(np.int64) + min_examples * np.arange(1, clients + 1)
    return np.split(rng.permutation(np.arange(examples)), ends[:-1])
