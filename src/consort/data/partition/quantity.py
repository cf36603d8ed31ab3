"""Quantity skew: fair samples of very different sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def quantity(
    examples: int, clients: int, alpha: float, min_examples: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """All examples: `min_examples` for everyone, the rest in Dirichlet proportions.

    The smaller `alpha`, the fewer clients hold most of the examples.
    """
    spare = examples - clients * min_examples
    shares = np.cumsum(rng.dirichlet(np.full(clients, alpha)))
    ends = np.rint(shares * spare).astype(np.int64) + min_examples * np.arange(1, clients + 1)
    return np.split(rng.permutation(np.arange(examples)), ends[:-1])
