"""What federation brings: the gain of a run over training alone, over tasks with unlike metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias, TypeVar

from consort.metrics.delta_m import delta_m
from consort.results.result import Result

DELTA_M = "delta_m"
ALONE = "LocalOnly"

T = TypeVar("T")


Scored: TypeAlias = Callable[[Result], Mapping[tuple[str, str], float]]
"""Scores of a run by group and task, or by client and task."""


def alone_by_seed(results: Sequence[Result]) -> dict[int, Result]:
    """The runs in which everybody trains alone."""
    return {result.seed: result for result in results if result.about.get("kind") == ALONE}


def gain_over(result: Result, alone: Result) -> float:
    """The mean relative gain over all tasks of all groups of clients; NaN if a score is missing."""
    higher = {key: has_higher_better(result, key[1]) for key in scores(result)}
    return gain(_named(scores(result)), _named(scores(alone)), _named(higher))


def gain(
    ours: Mapping[str, float], theirs: Mapping[str, float], higher: Mapping[str, bool]
) -> float:
    """The mean relative gain of scores in percent; NaN if one is missing, not finite or was zero.

    Args:
        ours: The scores.
        theirs: Those that they are compared with.
        higher: Of which of them more is better.
    """
    finite = all(math.isfinite(value) for value in (*ours.values(), *theirs.values()))
    if ours.keys() != theirs.keys() or not finite or not all(theirs.values()):
        return math.nan
    return delta_m(ours, theirs, higher)


def _named(values: Mapping[tuple[str, str], T]) -> dict[str, T]:
    return {"/".join(key): value for key, value in values.items()}


def scores(result: Result) -> dict[tuple[str, str], float]:
    """By group and task: the mean over the group's clients, on test data at the end."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (client, task), value in client_scores(result).items():
        values[str(result.clients[client]["group"]), task].append(value)
    return {key: fmean(found) for key, found in sorted(values.items())}


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
        key: gain({task: ours[key]}, {task: theirs[key]}, {task: has_higher_better(result, task)})
        for key in ours
        for task in key[1:]
        if theirs.get(key) and math.isfinite(ours[key]) and math.isfinite(theirs[key])
    }


def has_higher_better(result: Result, task: str) -> bool:
    """Whether more is better in a task."""
    return bool(result.tasks[task]["higher_is_better"])
