"""The gain of a method over single-client training, averaged over tasks with different metrics."""

from __future__ import annotations

from collections.abc import Mapping

from consort.errors import UsageError


def delta_m(
    values: Mapping[str, float],
    baselines: Mapping[str, float],
    higher_is_better: Mapping[str, bool],
) -> float:
    """The mean relative gain over the baselines in percent; every task has the same weight.

    Args:
        values: The method's metric for each task.
        baselines: The same metrics of training without federation.
        higher_is_better: For each task whether larger values of its metric are better.

    Returns:
        Δm in percent; positive if the method is better on average.

    Raises:
        UsageError: If the two have different tasks, or a baseline is 0.

    >>> delta_m({"seg": 0.75, "depth": 0.5}, {"seg": 0.5, "depth": 1.0},
    ...         {"seg": True, "depth": False})
    50.0
    """
    if not values or values.keys() != baselines.keys():
        raise UsageError("values and baselines of Δm must have the same tasks, at least one")
    gains = [_gain(values[t], baselines[t], higher_is_better[t], t) for t in sorted(values)]
    return 100 * sum(gains) / len(gains)


def _gain(value: float, baseline: float, higher: bool, task: str) -> float:
    if baseline == 0:
        raise UsageError(f"task {task!r} has a baseline of 0, so its relative gain is undefined")
    return (value - baseline) / baseline * (1 if higher else -1)
