"""What federation brings: the gain of a run over training alone, over tasks with unlike metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from consort.metrics.delta_m import delta_m
from consort.results import Result

DELTA_M = "delta_m"
ALONE = "LocalOnly"


def gains(results: Sequence[Result]) -> dict[tuple[str, int], float]:
    """Δm in percent by algorithm and seed, where a run of `local_only` with that seed is there."""
    alone = {result.seed: result for result in results if result.about.get("kind") == ALONE}
    return {
        (result.algorithm, result.seed): gain_over(result, alone[result.seed])
        for result in results
        if result.seed in alone
    }


def gain_over(result: Result, alone: Result) -> float:
    """The mean relative gain over all tasks of all groups of clients; NaN if a score is missing."""
    ours, theirs = scores(result), scores(alone)
    usable = ours.keys() == theirs.keys() and all(
        math.isfinite(value) for value in (*ours.values(), *theirs.values())
    )
    if not usable or not all(theirs.values()):
        return math.nan
    higher = {key: bool(result.tasks[key[1]]["higher_is_better"]) for key in ours}
    names = {key: "/".join(key) for key in ours}
    return delta_m(
        {names[key]: value for key, value in ours.items()},
        {names[key]: value for key, value in theirs.items()},
        {names[key]: value for key, value in higher.items()},
    )


def scores(result: Result) -> dict[tuple[str, str], float]:
    """By group and task: the mean over the group's clients, on test data in the last round."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for task in result.tasks:
        for client, value in result.clients_at(result.last_round, task).items():
            values[str(result.clients[client]["group"]), task].append(value)
    return {key: fmean(found) for key, found in sorted(values.items())}
