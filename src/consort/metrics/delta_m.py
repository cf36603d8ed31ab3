"""What a method gains over training alone, as a mean over tasks with unlike metrics."""

from __future__ import annotations

from collections.abc import Mapping

from consort.errors import UsageError


def delta_m(
    values: Mapping[str, float],
    baselines: Mapping[str, float],
    higher_is_better: Mapping[str, bool],
) -> float:
    """The mean relative gain over the baselines in percent; a task counts once.

    >>> delta_m({"seg": 0.75, "depth": 0.5}, {"seg": 0.5, "depth": 1.0},
    ...         {"seg": True, "depth": False})
    50.0
    """
    if not values or values.keys() != baselines.keys():
        raise UsageError("a gain over training alone needs the same tasks in both")
    gains = [_gain(values[t], baselines[t], higher_is_better[t], t) for t in sorted(values)]
    return 100 * sum(gains) / len(gains)


def _gain(value: float, baseline: float, higher: bool, task: str) -> float:
    if baseline == 0:
        raise UsageError(f"task {task!r} has a baseline of 0: nothing is relative to that")
    return (value - baseline) / baseline * (1 if higher else -1)
