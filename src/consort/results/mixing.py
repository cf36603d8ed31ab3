"""Whether runs may stand side by side: those of unlike settings are compared only by mistake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from consort.results.result import Result
from consort.run.differences import differences

TELLS = ("title", "about", "average_rounds", "seeds", "published", "claims", "sweep", "scales")
"""Keys of a recipe that decide no number of a run."""
_MOST = 3
"""Settings that a sentence names."""


def unlike_settings(results: Sequence[Result]) -> list[str]:
    """Sentences about runs whose settings differ in more than algorithm and seed.

    Args:
        results: The runs.

    Returns:
        One sentence for every kind of difference; none if the runs belong together.
    """
    found: dict[str, Result] = {}
    first = results[0]
    for run in results[1:]:
        for text in _unlike(first, run):
            found.setdefault(text, run)
    alike: dict[str, Result] = {}
    for run in results:
        before = alike.setdefault(run.algorithm, run)
        for text in _told(_options(before), _options(run)):
            found.setdefault(f"{run.algorithm} with different options: {text}", run)
    partitions: dict[int, Result] = {}
    for run in results:
        before = partitions.setdefault(run.seed, run)
        if before.about["partition"] != run.about["partition"]:
            found.setdefault(f"different data or partitions with seed {run.seed}", run)
    return [f"{text} ({run.folder})" for text, run in found.items()]


def _unlike(first: Result, run: Result) -> list[str]:
    return [f"different settings: {text}" for text in _told(_common(first), _common(run))]


def _told(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    changes = [f"{key} is {was} and {is_}" for key, was, is_ in differences(before, now)]
    if not changes:
        return []
    more = f" and {len(changes) - _MOST} more" if len(changes) > _MOST else ""
    return ["; ".join(changes[:_MOST]) + more]


def _common(run: Result) -> dict[str, Any]:
    """The settings that algorithms share."""
    own = {*TELLS, "algorithms", "initial_seed"}
    return {key: value for key, value in run.about["recipe"].items() if key not in own}


def _options(run: Result) -> dict[str, Any]:
    options = run.about["recipe"].get("algorithms", {}).get(run.algorithm)
    return dict(options or {})
