"""Task skew: every client learns one task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.iid import iid
from consort.errors import UsageError


def task(
    examples: int, clients: int, tasks: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Client i has task number i modulo their count; each task deals out all examples anew.

    So clients of one task share no example, while clients of different tasks may.
    """
    if clients < tasks:
        raise UsageError(f"clients = {clients}, but there are {tasks} tasks: raise clients")
    decks = [iid(examples, len(range(first, clients, tasks)), rng) for first in range(tasks)]
    return [decks[client % tasks][client // tasks] for client in range(clients)]
