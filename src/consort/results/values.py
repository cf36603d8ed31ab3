"""The numbers of a run that tables and claims can name."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from functools import partial
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, TypeAlias

from consort.errors import UsageError
from consort.results.summary import mean

if TYPE_CHECKING:
    from consort.results.result import Direction, Result

TUNED = "tuned"
"""The model after local training that nobody else sees."""
UNSEEN = "unseen_"
"""How splits of users begin that no client trains on."""

Values: TypeAlias = "dict[str, Callable[[Result], float]]"
"""By name, how each number is found in a run."""


def values_of(run: Result) -> Values:
    """The values that a run has."""
    tested = [series for series in run.series if series.split == "test"]
    reported = [series for series in run.series if series.model == run.reports]
    return named_values(
        own=run.own_metrics,
        metrics={series.metric for series in reported if series.split == "test"},
        tuned={series.metric for series in tested if series.model == TUNED},
        unseen={(s.split, s.metric) for s in reported if s.split.startswith(UNSEEN)},
        flops=bool(run.client_flops()),
    )


def named_values(
    own: Collection[str],
    metrics: Iterable[str],
    tuned: Collection[str] = (),
    unseen: Iterable[tuple[str, str]] = (),
    flops: bool = False,
) -> Values:
    """The values that a run with these measurements has.

    Args:
        own: The metrics that stand for tasks.
        metrics: All metrics of the reported model on test data.
        tuned: Those that were measured after local training as well.
        unseen: Splits of users that no client trains on, each with a metric.
        flops: Whether operations were counted.

    Returns:
        By name, how each value is found.
    """
    every = sorted({*metrics, *own})
    values: Values = {m: partial(_final, metric=m) for m in every}
    values |= {f"best_{m}": partial(_best, metric=m) for m in every}
    values |= {f"worst_{m}": partial(_worst, metric=m) for m in own}
    values |= {f"weighted_{m}": partial(_weighted, metric=m) for m in own}
    values |= {f"spread_{m}": partial(_spread, metric=m) for m in own}
    values |= {f"{TUNED}_{m}": partial(_final, metric=m, model=TUNED) for m in sorted(tuned)}
    values |= {
        f"worst_{TUNED}_{m}": partial(_worst, metric=m, model=TUNED) for m in own if m in tuned
    }
    values |= {f"{s}_{m}": partial(_final, metric=m, split=s) for s, m in sorted(unseen)}
    return values | _COSTS | ({"flops": _flops} if flops else {})


def _final(run: Result, metric: str, split: str = "test", model: str = "") -> float:
    return mean(run.over_last_rounds(metric, split, model).values())


def _best(run: Result, metric: str) -> float:
    return mean(run.by_client(metric, run.best_round).values())


def _worst(run: Result, metric: str, model: str = "") -> float:
    values = run.over_last_rounds(metric, model=model).values()
    if math.isnan(mean(values)):
        return math.nan
    return min(values) if run.own_metrics[metric] else max(values)


def _spread(run: Result, metric: str) -> float:
    values = list(run.over_last_rounds(metric).values())
    return math.nan if math.isnan(mean(values)) else pstdev(values)


def _weighted(run: Result, metric: str) -> float:
    values, examples = run.over_last_rounds(metric), run.examples()
    if math.isnan(mean(values.values())):
        return math.nan
    return fmean(values.values(), [examples[client] for client in values])


def _sent(run: Result, directions: Iterable[Direction]) -> float:
    return float(sum(size for way in directions for size in run.bytes(way).values()))


def _flops(run: Result) -> float:
    return math.fsum(run.client_flops().values())


_COSTS: Values = {
    "bytes": partial(_sent, directions=("up", "down")),
    "bytes_up": partial(_sent, directions=("up",)),
    "bytes_down": partial(_sent, directions=("down",)),
    "seconds": lambda run: math.fsum(run.per_round("seconds").values()),
    "client_seconds": lambda run: math.fsum(run.client_seconds().values()),
}


_FALLING = {"loss", "eer", "far", "frr", "rmse", "mse", "error", "skipped"}
"""Words in the names of metrics of which less is better."""


def is_higher_better(run: Result, name: str) -> bool:
    """Whether higher is better, for a value that `Result.value` can be asked for.

    Known for metrics that stand for a task and for costs. Other metrics are judged by their names:
    of a loss, an error or an error rate, less is better.

    Args:
        run: A run that has the value.
        name: The name of the value.
    """
    if name in _COSTS or name == "flops":
        return False
    for metric, higher in run.own_metrics.items():
        if name == metric or name.endswith(f"_{metric}"):
            return higher
    return rises(name)


def rises(name: str) -> bool:
    """Whether more of a value is better, judged by its name alone.

    Args:
        name: The name of the value.
    """
    return name not in _COSTS and name != "flops" and _FALLING.isdisjoint(name.split("_"))


def by_client(run: Result, name: str) -> dict[str, float]:
    """The value of every client, of which `Result.value` gives the mean.

    Args:
        run: The run.
        name: A metric, also in the best round (`best_accuracy`), after local training
            (`tuned_accuracy`) or of unseen users.

    Raises:
        UsageError: The value is not a mean over clients.
    """
    found = values_of(run).get(name)
    if isinstance(found, partial) and found.func is _final:
        return run.over_last_rounds(**found.keywords)
    if isinstance(found, partial) and found.func is _best:
        return run.by_client(found.keywords["metric"], run.best_round)
    raise UsageError(f"{name} is no mean over clients: clients cannot be paired by it")
