"""Settings that were tried, with what became of them."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from consort.errors import Failure
from consort.experiment.sweep import Point
from consort.results.pareto import front
from consort.results.summary import Summary


@dataclass(frozen=True)
class Trial:
    """One setting of one algorithm, and what became of it."""

    algorithm: str
    point: Point
    validation: Summary | None = None
    """The deciding metric on validation data over the seeds of the search; None if it failed."""
    bytes: float = math.nan
    """Sent in a run, up and down, on average over seeds."""
    seconds: float = math.nan
    """Of a run's rounds, on average over seeds."""
    error: str = ""
    """Why it failed."""

    @property
    def name(self) -> str:
        """A short name, the same whenever this setting is tried."""
        text = json.dumps(self.point, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def best_of(trials: Sequence[Trial], higher_is_better: bool) -> Trial:
    """The trial that validation data prefer; the first of equals.

    Args:
        trials: The trials of one algorithm.
        higher_is_better: Of the deciding metric.

    Raises:
        Failure: All of them failed.
    """
    scored = [(t.validation.mean, t) for t in trials if t.validation]
    if not scored:
        raise Failure(f"{trials[0].algorithm}: all settings failed, the first: {trials[0].error}")
    sign = 1 if higher_is_better else -1
    return max(scored, key=lambda pair: sign * pair[0])[1]


def trials_table(trials: Sequence[Trial], metric: str, higher_is_better: bool = True) -> str:
    """What was tried, as CSV: settings, the validation score, costs, and who is on a Pareto front.

    Args:
        trials: The trials.
        metric: The deciding metric.
        higher_is_better: Of the deciding metric.
    """
    best = fronts(trials, higher_is_better)
    keys = sorted({key for trial in trials for key in trial.point})
    head = ["algorithm", "trial", *keys, f"validation_{metric}", "std", "seeds", "bytes", "seconds",
            "pareto", "error"]  # fmt: skip
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    for trial in trials:
        score = trial.validation
        found = [score.mean, score.std, score.n] if score else ["", "", ""]
        settings = [trial.point.get(key, "") for key in keys]
        costs = [trial.bytes, trial.seconds] if score else ["", ""]
        on = " ".join(cost for cost, front_of in best.items() if trial in front_of)
        writer.writerow([trial.algorithm, trial.name, *settings, *found, *costs, on, trial.error])
    return out.getvalue()


def fronts(trials: Sequence[Trial], higher_is_better: bool) -> dict[str, list[Trial]]:
    """The trials that no other one beats in both score and cost, for each kind of cost.

    Args:
        trials: The trials of all algorithms.
        higher_is_better: Of the deciding metric.

    Returns:
        The trials by `bytes` and `seconds`, cheapest first.
    """
    sign = 1 if higher_is_better else -1
    scored = [(t, sign * t.validation.mean) for t in trials if t.validation]
    found: dict[str, list[Trial]] = {}
    for cost in ("bytes", "seconds"):
        points: list[tuple[float, float]] = [(getattr(t, cost), s) for t, s in scored]
        found[cost] = [scored[number][0] for number in front(points)]
    return found
