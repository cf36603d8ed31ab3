"""Every client a fair sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def iid(examples: int, clients: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """All examples, shuffled and dealt out in parts that differ by at most one."""
    return np.array_split(rng.permutation(np.arange(examples)), clients)
