"""What federation brings: the gain of a run over training alone, over tasks with unlike metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from consort.metrics.delta_m import delta_m
from consort.results.result import Result

DELTA_M = "delta_m"
ALONE = "LocalOnly"


Scored: TypeAlias = Callable[[Result], Mapping[tuple[str, str], float]]
"""Scores of a run by group and task, or by client and task."""


def gains(results: Sequence[Result]) -> dict[tuple[str, int], float]:
    """Δm in percent by algorithm and seed, where a run of `local_only` with that seed is there."""
    alone = alone_by_seed(results)
    return {
        (result.algorithm, result.seed): gain_over(result, alone[result.seed])
        for result in results
        if result.seed in alone
    }


def alone_by_seed(results: Sequence[Result]) -> dict[int, Result]:
    """The runs in which everybody trains alone."""
    return {result.seed: result for result in results if result.about.get("kind") == ALONE}


def gain_over(result: Result, alone: Result) -> float:
    """The mean relative gain over all tasks of all groups of clients; NaN if a score is missing."""
    ours, theirs = scores(result), scores(alone)
    usable = ours.keys() == theirs.keys() and all(
        math.isfinite(value) for value in (*ours.values(), *theirs.values())
    )
    if not usable or not all(theirs.values()):
        return math.nan
    higher = {key: _higher(result, key[1]) for key in ours}
    names = {key: "/".join(key) for key in ours}
    return delta_m(
        {names[key]: value for key, value in ours.items()},
        {names[key]: value for key, value in theirs.items()},
        {names[key]: value for key, value in higher.items()},
    )


def scores(result: Result) -> dict[tuple[str, str], float]:
    """By group and task: the mean over the group's clients, on test data at the end."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (client, task), value in client_scores(result).items():
        values[str(result.clients[client]["group"]), task].append(value)
    return {key: fmean(found) for key, found in sorted(values.items())}


def upward_scores(result: Result) -> dict[tuple[str, str], float]:
    """By group and task: the same with its sign changed where lower is better."""
    return {
        key: value if _higher(result, key[1]) else -value for key, value in scores(result).items()
    }


def client_scores(result: Result) -> dict[tuple[str, str], float]:
    """By client and task: on test data, over the rounds that count at the end."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for task in result.tasks:
        for round_ in result.last_rounds:
            for client, value in result.clients_at(round_, task).items():
                values[client, task].append(value)
    return {key: fmean(found) for key, found in values.items()}


def gains_apart(result: Result, alone: Result, scored: Scored) -> dict[tuple[str, str], float]:
    """What Δm is the mean of, in percent; without those whose score is missing or was zero."""
    ours, theirs = scored(result), scored(alone)
    return {
        key: delta_m({task: ours[key]}, {task: theirs[key]}, {task: _higher(result, task)})
        for key in ours
        for task in key[1:]
        if theirs.get(key) and math.isfinite(ours[key]) and math.isfinite(theirs[key])
    }


def _higher(result: Result, task: str) -> bool:
    return bool(result.tasks[task]["higher_is_better"])
