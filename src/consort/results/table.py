"""The table of a comparison: one line per algorithm, every number over seeds, beside papers'."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from consort.results.result import Result
from consort.results.summary import Summary, spread, summarise
from consort.results.values import TUNED

MIB = 2**20


@dataclass(frozen=True)
class Published:
    """Numbers from a paper, to stand beside ours."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    source: str
    metric: str
    values: dict[str, float]
    """By the algorithm's name in this recipe."""
    percent: bool = True
    """Whether the paper prints 61.2 where we measure 0.612."""
    higher_is_better: bool = True
    """Which way the metric points, if it is not one that stands for a task."""
    group: str = ""
    """Of which clients they are, if not of all."""
    task: str = ""
    """Of which task they are, if not of all that have this metric."""

    @property
    def narrow(self) -> str:
        """Of what in particular they are, in words."""
        return ", ".join(filter(None, (self.group, self.task)))


@dataclass(frozen=True)
class Line:
    """One algorithm and one metric in a comparison; every summary is over seeds."""

    algorithm: str
    metric: str
    higher_is_better: bool
    rounds: int
    """Over how many rounds the last values are taken."""
    last: Summary
    """Mean over clients in the last rounds."""
    best: Summary
    """Mean over clients in the best round by validation."""
    client_std: Summary
    """Standard deviation among clients in the last rounds."""
    worst: Summary
    """The worst client in the last rounds."""
    tuned: Summary | None
    """Mean over clients in the last rounds after local training, where that was measured."""
    mib_per_round: Summary
    seconds_per_round: Summary
    epsilon: float | None
    """What the worst protected client has spent, in the worst of the runs, where it is counted."""
    published: float | None
    """What a paper reports for this algorithm and metric, on our scale."""


def by_algorithm(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The runs of every algorithm, by seed; runs of the same seed are told apart by folder."""
    groups: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        groups[result.algorithm].append(result)
    told_apart: dict[str, list[Result]] = {}
    for algorithm, runs in groups.items():
        if len({run.seed for run in runs}) == len(runs):
            told_apart[algorithm] = sorted(runs, key=lambda run: run.seed)
        else:
            told_apart |= {f"{algorithm} ({run.folder})": [run] for run in runs}
    return told_apart


def compare_table(results: Sequence[Result], published: Sequence[Published] = ()) -> list[Line]:
    """One line per algorithm, and per metric where tasks have different ones or papers others.

    What papers report of one task, or of one group of clients, has lines of its own.
    """
    overall = [source for source in published if not source.narrow]
    narrow = [source for source in published if source.narrow]
    lines = []
    for algorithm, runs in by_algorithm(results).items():
        for metric, higher in _metrics(runs[0], overall).items():
            value = _published(runs[0].algorithm, metric, overall)
            lines.append(_line(algorithm, runs, metric, higher, value))
        for source in narrow:
            lines += _narrow_line(algorithm, runs, source)
    return lines


def _narrow_line(algorithm: str, runs: Sequence[Result], source: Published) -> Iterator[Line]:
    parts = [run.only(source.group, source.task) for run in runs]
    metrics = _metrics(parts[0], [source])
    if all(part.over_last_rounds(source.metric) for part in parts):
        value = _published(runs[0].algorithm, source.metric, [source])
        line = _line(algorithm, parts, source.metric, metrics[source.metric], value)
        yield replace(line, metric=f"{source.metric} of {source.narrow}")


def last_rounds(lines: Sequence[Line]) -> str:
    """Of which rounds the last values are."""
    rounds = max(line.rounds for line in lines)
    return "last round" if rounds == 1 else f"last {rounds} rounds"


def _metrics(run: Result, published: Sequence[Published]) -> dict[str, bool]:
    """The tasks' own metrics, then those that papers report: is higher better?"""
    measured = run.metric_names()
    others = {p.metric: p.higher_is_better for p in published if f"best_{p.metric}" in measured}
    return run.own_metrics | {m: higher for m, higher in others.items() if m not in run.own_metrics}


def _published(algorithm: str, metric: str, sources: Sequence[Published]) -> float | None:
    for source in sources:
        if source.metric == metric and algorithm in source.values:
            return source.values[algorithm] / (100 if source.percent else 1)
    return None


def _line(
    algorithm: str, runs: Sequence[Result], metric: str, higher: bool, published: float | None
) -> Line:
    def over_seeds(measure: Callable[[Result], float]) -> Summary:
        return summarise(list(map(measure, runs)))

    tuned = f"{TUNED}_{metric}"
    measured = all(tuned in run.metric_names() for run in runs)
    return Line(
        algorithm=algorithm,
        metric=metric,
        higher_is_better=higher,
        rounds=max(run.average_rounds for run in runs),
        last=over_seeds(lambda run: run.value(metric)),
        best=over_seeds(lambda run: run.value(f"best_{metric}")),
        client_std=over_seeds(lambda run: _client_std(run, metric)),
        worst=over_seeds(lambda run: _worst_client(run, metric, higher)),
        tuned=over_seeds(lambda run: run.value(tuned)) if measured else None,
        mib_per_round=over_seeds(lambda run: run.value("bytes") / MIB / run.rounds_done),
        seconds_per_round=over_seeds(lambda run: run.value("seconds") / run.rounds_done),
        epsilon=max(map(spent, runs)) if all("epsilon" in run.noted for run in runs) else None,
        published=published,
    )


def spent(run: Result) -> float:
    """The ε of the client that has spent most, at the end."""
    rounds = run.notes("epsilon")[""]
    return max(rounds[max(rounds)].values())


def _worst_client(run: Result, metric: str, higher: bool) -> float:
    values = run.over_last_rounds(metric).values()
    if not values or not all(map(math.isfinite, values)):
        return math.nan
    return min(values) if higher else max(values)


def _client_std(run: Result, metric: str) -> float:
    values = list(run.over_last_rounds(metric).values())
    return spread(values, [1.0] * len(values)).std if values else math.nan
