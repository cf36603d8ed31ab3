"""Task skew: every client learns one task."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consort.data.partition.iid import iid
from consort.errors import UsageError


def task(
    examples: int, clients: int, tasks: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Gives client i task i modulo the number of tasks; each task distributes all examples anew.

    Clients of the same task share no examples; clients of different tasks may.

    Args:
        examples: The number of examples.
        clients: The number of clients.
        tasks: The number of tasks.
        rng: The source of randomness.

    Returns:
        For each client the positions of its examples.

    Raises:
        UsageError: If there are fewer clients than tasks.
    """
    if clients < tasks:
        raise UsageError(f"clients = {clients}, but there are {tasks} tasks: raise clients")
    parts = [iid(examples, len(range(first, clients, tasks)), rng) for first in range(tasks)]
    return [parts[client % tasks][client // tasks] for client in range(clients)]
