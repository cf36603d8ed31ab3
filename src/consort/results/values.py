"""The numbers of a run that tables and claims can name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from consort.results.result import Direction, Result

TUNED = "tuned"
"""The model after local training that nobody else sees."""
UNSEEN = "unseen_"
"""How splits of users begin that no client trains on."""

Values: TypeAlias = dict[str, Callable[[], float]]


def values_of(run: Result) -> Values:
    """By name, how each number is found."""
    tested = [series for series in run.series if series.split == "test"]
    metrics = {s.metric for s in tested if s.model == run.reports} | set(run.own_metrics)
    tuned = {s.metric for s in tested if s.model == TUNED}
    values: Values = {m: partial(_final, run, m) for m in sorted(metrics)}
    values |= {f"best_{m}": partial(_best, run, m) for m in sorted(metrics)}
    values |= {f"worst_{m}": partial(_worst, run, m) for m in run.own_metrics}
    values |= {f"weighted_{m}": partial(_weighted, run, m) for m in run.own_metrics}
    values |= {f"{TUNED}_{m}": partial(_final, run, m, model=TUNED) for m in sorted(tuned)}
    own = [metric for metric in run.own_metrics if metric in tuned]
    values |= {f"worst_{TUNED}_{m}": partial(_worst, run, m, TUNED) for m in own}
    return values | _of_strangers(run) | _costs(run)


def mean(values: Iterable[float]) -> float:
    """The mean, unless something diverged: then it is not a number."""
    numbers = list(values)
    return fmean(numbers) if numbers and all(map(math.isfinite, numbers)) else math.nan


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, and the bounds of the middle half."""
    average = mean(values)
    if len(values) < 2 or math.isnan(average):
        return average, average, average
    low, _, high = quantiles(values, n=4, method="inclusive")
    return average, low, high


def _final(run: Result, metric: str, split: str = "test", model: str = "") -> float:
    return mean(run.over_last_rounds(metric, split, model).values())


def _best(run: Result, metric: str) -> float:
    return mean(run.by_client(metric, run.best_round).values())


def _worst(run: Result, metric: str, model: str = "") -> float:
    values = run.over_last_rounds(metric, model=model).values()
    if math.isnan(mean(values)):
        return math.nan
    return min(values) if run.own_metrics[metric] else max(values)


def _weighted(run: Result, metric: str) -> float:
    values, examples = run.over_last_rounds(metric), run.examples()
    if math.isnan(mean(values.values())):
        return math.nan
    return fmean(values.values(), [examples[client] for client in values])


def _of_strangers(run: Result) -> Values:
    series = [s for s in run.series if s.split.startswith(UNSEEN) and s.model == run.reports]
    return {f"{s.split}_{s.metric}": partial(_final, run, s.metric, s.split) for s in series}


def _costs(run: Result) -> Values:
    def sent(*ways: Direction) -> float:
        return float(sum(size for way in ways for size in run.bytes(way).values()))

    costs: Values = {
        "bytes": partial(sent, "up", "down"),
        "bytes_up": partial(sent, "up"),
        "bytes_down": partial(sent, "down"),
        "seconds": lambda: math.fsum(run.per_round("seconds").values()),
        "client_seconds": lambda: math.fsum(run.client_seconds().values()),
    }
    flops = run.client_flops()
    return costs | ({"flops": lambda: math.fsum(flops.values())} if flops else {})
