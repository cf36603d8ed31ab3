"""Which updates of others a client adopts: the candidates of FedMH, and when one is accepted.

A choice holds one number per task: that of the prefix of clients whose updates are adopted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

Choice = tuple[int, ...]
"""By task: the number of a prefix of clients."""


def published_choices(prefixes: int, tasks: int = 2, first: int = 0) -> list[Choice]:
    """The candidates of FedMH's Equations 10 and 11, in their order.

    The same prefix for all tasks; then one task with all updates and the others with one; then one
    with all and the others with half of them.

    Args:
        prefixes: The number of prefixes, that is of clients that sent an update.
        tasks: The number of tasks.
        first: The smallest prefix of the first set: 1 as printed, 0 as the costs in the paper's
            Table 12 imply.

    Returns:
        The candidates, without repetitions.
    """
    last = prefixes - 1
    chosen = [(number,) * tasks for number in range(first, prefixes)]
    for rest in (0, prefixes // 2) if prefixes >= 3 else (0,):
        chosen += [
            tuple(last if task == leader else rest for task in range(tasks))
            for leader in range(tasks)
        ]
    return list(dict.fromkeys(chosen))


def all_choices(prefixes: int, tasks: int = 2) -> Iterable[Choice]:
    """All combinations of `prefixes` for so many `tasks`."""
    return product(range(prefixes), repeat=tasks)


def sum_if_improved(
    before: Sequence[float],
    after: Iterable[float],
    significance: float = 0.01,
    tolerance: float = 1e-6,
    guard: float = 1e-8,
) -> float:
    """The sum of the new losses, if they are a Pareto improvement.

    No loss may be higher than before, one must be lower by a significant share, and the sum must
    be lower.

    Args:
        before: The loss of each task before.
        after: The loss of each task after; those that follow a higher one are not computed.
        significance: The relative decrease that counts as significant.
        tolerance: The increase of a loss that is still accepted.
        guard: Avoids a division by zero in relative decreases.

    Returns:
        The sum; infinity if there is no improvement.
    """
    pairs: list[tuple[float, float]] = []
    for old, new in zip(before, after, strict=True):
        if not (math.isfinite(new) and new <= old + tolerance):
            return math.inf
        pairs.append((old, new))
    significant = any((old - new) / (abs(old) + guard) > significance for old, new in pairs)
    total = sum(new for _, new in pairs)
    return total if significant and total < sum(before) else math.inf
