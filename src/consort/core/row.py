"""One measured value, as a row of a run's history."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One measured value; fields that do not apply are empty."""

    round: int
    """The round after which it was measured."""
    metric: str
    """What was measured."""
    value: float
    """The value."""
    client: str = ""
    """The name of the client."""
    task: str = ""
    """The name of the task."""
    split: str = ""
    """The split that the model was evaluated on, such as `test`."""
    model: str = ""
    """Which of the client's models it is: `global`, `personal` or `tuned`."""
    part: str = ""
    """The role of sent parameters, the method of a call, or what the algorithm notes."""
    n: int = 0
    """The number of examples that the value is computed from."""
