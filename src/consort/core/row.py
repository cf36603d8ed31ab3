"""One measured value, as a line of a run's history."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One measured value.

    `model` tells which of a client's models it is of (`global`, `personal`, `tuned`); `part` is the
    role for bytes. What does not apply is empty. `n` is how many examples the value is over.
    """

    round: int
    metric: str
    value: float
    client: str = ""
    task: str = ""
    split: str = ""
    model: str = ""
    part: str = ""
    n: int = 0
