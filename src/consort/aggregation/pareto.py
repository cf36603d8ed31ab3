"""Which updates of others a client takes over: the candidates of FedMH, and when one is good.

A choice holds one number per task: that of the prefix of clients whose updates are taken over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import product

Choice = tuple[int, ...]


def published_choices(prefixes: int, tasks: int = 2, first: int = 0) -> list[Choice]:
    """The same prefix for all tasks; then one task with all updates and the others with one; then
    one with all and the others with half of them. `first` is the smallest of the same prefixes."""
    last = prefixes - 1
    chosen = [(number,) * tasks for number in range(first, prefixes)]
    for rest in (0, prefixes // 2) if prefixes >= 3 else (0,):
        chosen += [
            tuple(last if task == leader else rest for task in range(tasks))
            for leader in range(tasks)
        ]
    return list(dict.fromkeys(chosen))


def all_choices(prefixes: int, tasks: int = 2) -> Iterable[Choice]:
    """Every prefix with every other."""
    return product(range(prefixes), repeat=tasks)


def improves(
    before: Sequence[float],
    after: Sequence[float],
    significance: float = 0.01,
    tolerance: float = 1e-6,
    guard: float = 1e-8,
) -> bool:
    """Whether no loss rises, one falls by a significant share, and so does the sum of all."""
    pairs = list(zip(before, after, strict=True))
    return (
        all(map(math.isfinite, after))
        and all(new <= old + tolerance for old, new in pairs)
        and any((old - new) / (abs(old) + guard) > significance for old, new in pairs)
        and sum(after) < sum(before)
    )
