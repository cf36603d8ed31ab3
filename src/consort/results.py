"""What a run measured, read back from its folder and put in order."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any, Literal, NamedTuple, TypeAlias

from consort.errors import Failure, UsageError
from consort.history import History, Row
from consort.statistics import Spread, Summary, spread, summarise

MIB = 2**20

Direction: TypeAlias = Literal["up", "down"]
Aspect: TypeAlias = Literal["round", "client", "role"]

_ASPECTS: tuple[Aspect, ...] = ("round", "client", "role")
_COSTS = ("bytes", "bytes_up", "bytes_down", "seconds")
_REQUIRED = ("title", "algorithm", "reports", "seed", "rounds", "tasks", "clients")


class Series(NamedTuple):
    """What is followed over the rounds."""

    task: str
    metric: str
    split: str
    model: str


class Score(NamedTuple):
    """One client's value, and how many examples it is over."""

    value: float
    n: int


class Point(NamedTuple):
    """The clients in one round: their mean and the bounds of their middle half."""

    round: int
    mean: float
    low: float
    high: float


class _Index:
    """The rows of a history, each where it will be looked for."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.scores: dict[Series, dict[int, dict[str, Score]]] = defaultdict(dict)
        self.bytes: dict[str, Counter[tuple[int, str, str]]] = defaultdict(Counter)
        self.client_seconds: Counter[str] = Counter()
        self.rounds: dict[str, dict[int, float]] = defaultdict(dict)
        for row in rows:
            self._take(row)

    def _take(self, row: Row) -> None:
        if row.split:
            series = Series(row.task, row.metric, row.split, row.model)
            clients = self.scores[series].setdefault(row.round, {})
            clients[row.client] = Score(row.value, row.n)
        elif row.metric in ("bytes_up", "bytes_down"):
            direction = row.metric.removeprefix("bytes_")
            self.bytes[direction][row.round, row.client, row.part] += row.value  # type: ignore[assignment]
        elif row.client:
            self.client_seconds[row.client] += row.value  # type: ignore[assignment]
        else:
            self.rounds[row.metric][row.round] = row.value


@dataclass(frozen=True)
class Result:
    """One run: one algorithm on one federation with one seed, finished or still going."""

    folder: Path
    about: Mapping[str, Any]
    """The contents of `run.json`."""
    _index: _Index = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> Result:
        """Reads a run's folder."""
        about = _about(folder)
        result = cls(folder, about, _Index(History(folder / "history.jsonl")))
        if not result.evaluated:
            raise Failure(
                f"{folder}: no results yet; wait for the first evaluation, "
                f"or go on with `consort resume {folder}`"
            )
        return result

    @property
    def algorithm(self) -> str:
        """The label of the algorithm in this run."""
        return str(self.about["algorithm"])

    @property
    def seed(self) -> int:
        """The seed of this run."""
        return int(self.about["seed"])

    @property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """Every task with its `metric` and whether `higher_is_better`."""
        tasks: Mapping[str, Mapping[str, Any]] = self.about["tasks"]
        return tasks

    @property
    def clients(self) -> Mapping[str, Mapping[str, Any]]:
        """What is known of every client."""
        clients: Mapping[str, Mapping[str, Any]] = self.about["clients"]
        return clients

    @property
    def reports(self) -> str:
        """Which of the models stands for this algorithm in tables."""
        return str(self.about["reports"])

    @property
    def series(self) -> list[Series]:
        """Everything that was measured over the rounds."""
        return sorted(self._index.scores)

    @cached_property
    def evaluated(self) -> list[int]:
        """The rounds with an evaluation."""
        return sorted({round_ for rounds in self._index.scores.values() for round_ in rounds})

    @cached_property
    def own_metrics(self) -> dict[str, bool]:
        """The metrics that stand for tasks, in the order of the tasks: is higher better?"""
        metrics: dict[str, bool] = {}
        for task in self.tasks.values():
            metrics.setdefault(task["metric"], task["higher_is_better"])
        return metrics

    @property
    def last_round(self) -> int:
        """The last round with an evaluation."""
        return self.evaluated[-1]

    @cached_property
    def best_round(self) -> int:
        """The round that validation prefers, the earliest of equals; test data have no say.

        Tasks have units of their own, so a round is judged by how many rounds are strictly better,
        added up over the tasks. Without validation examples it is the last round.
        """
        worse = [rank for task in self.tasks if (rank := self._ranks(task))]
        if not worse:
            return self.last_round
        return min(self.evaluated, key=lambda r: (sum(rank[r] for rank in worse), r))

    def _ranks(self, task: str) -> dict[int, int]:
        metric, sign = self.tasks[task]["metric"], 1 if self.tasks[task]["higher_is_better"] else -1
        means = {p.round: sign * p.mean for p in self.curve(task, metric, "validation")}
        goodness = {r: -math.inf if math.isnan(mean) else mean for r, mean in means.items()}
        ordered = sorted(goodness.values())
        lowest = -math.inf  # a round in which nobody could be evaluated on this task
        return goodness and {
            r: len(ordered) - bisect_right(ordered, goodness.get(r, lowest)) for r in self.evaluated
        }

    def clients_at(
        self,
        round: int,
        task: str,
        metric: str | None = None,
        split: str = "test",
        model: str | None = None,
    ) -> dict[str, float]:
        """Every client's value in a round; by default the task's own metric, the reported model."""
        scores = self._scores(round, task, metric, split, model)
        return {client: score.value for client, score in scores.items()}

    def spread(
        self,
        round: int,
        task: str,
        metric: str | None = None,
        split: str = "test",
        model: str | None = None,
    ) -> Spread:
        """How the clients differ in a round, given like in `clients_at`."""
        scores = self._scores(round, task, metric, split, model).values()
        if not scores:
            raise Failure(f"{self.folder}: nothing was measured of task {task} in round {round}")
        return spread([score.value for score in scores], [score.n for score in scores])

    def curve(
        self, task: str, metric: str, split: str = "test", model: str | None = None
    ) -> list[Point]:
        """The clients' mean and middle half in every round with an evaluation."""
        rounds = self._index.scores.get(Series(task, metric, split, model or self.reports), {})
        return [
            Point(r, *_middle([score.value for score in rounds[r].values()]))
            for r in sorted(rounds)
        ]

    def _scores(
        self, round: int, task: str, metric: str | None, split: str, model: str | None
    ) -> dict[str, Score]:
        if task not in self.tasks:
            raise UsageError(f"{self.folder}: no task `{task}`; there are {', '.join(self.tasks)}")
        series = Series(task, metric or self.tasks[task]["metric"], split, model or self.reports)
        return dict(sorted(self._index.scores.get(series, {}).get(round, {}).items()))

    def per_round(self, metric: str) -> dict[int, float]:
        """A value of the whole run, such as `seconds` or `peak_memory_mib`, in every round."""
        return dict(sorted(self._index.rounds.get(metric, {}).items()))

    def client_seconds(self) -> dict[str, float]:
        """How long every client worked, all rounds together."""
        return dict(sorted(self._index.client_seconds.items()))

    def bytes(
        self, direction: Direction, by: Aspect = "role", role: str | None = None
    ) -> dict[Any, float]:
        """Bytes that went `up` or `down`, added up by round, client or role; perhaps of one role."""
        sizes: Counter[Any] = Counter()
        position = _ASPECTS.index(by)
        for key, size in self._index.bytes.get(direction, {}).items():
            if role is None or key[2] == role:
                sizes[key[position]] += size
        return dict(sorted(sizes.items()))

    def by_client(self, metric: str, round: int) -> dict[str, float]:
        """Every client's test value of a metric, the mean over its tasks that have this metric."""
        values: dict[str, list[float]] = defaultdict(list)
        for task in self.tasks:
            for client, value in self.clients_at(round, task, metric).items():
                values[client].append(value)
        return {client: fmean(values[client]) for client in sorted(values)}

    def worst(self, metric: str, round: int) -> float:
        """The value of the client that is served worst."""
        values = self.by_client(metric, round).values()
        if not values or any(map(math.isnan, values)):
            return math.nan
        return min(values) if self.own_metrics[metric] else max(values)

    def metric_names(self) -> list[str]:
        """What `value` can be asked for."""
        tested = {s.metric for s in self.series if s.split == "test" and s.model == self.reports}
        metrics = sorted(tested | set(self.own_metrics))
        best = [f"best_{metric}" for metric in metrics]
        return [*metrics, *best, *(f"worst_{metric}" for metric in self.own_metrics), *_COSTS]

    def value(self, name: str) -> float:
        """One number for a table or a claim.

        `accuracy` is the mean over clients (of the mean over a client's tasks) of the reported
        model on test data in the last round, `best_accuracy` the same in the best round by
        validation, `worst_accuracy` the worst client in the last round. `bytes`, `bytes_up`,
        `bytes_down` and `seconds` are totals of the run.
        """
        names = self.metric_names()
        if name not in names:
            raise UsageError(f"{self.folder}: no value `{name}`; there are {', '.join(names)}")
        if name in _COSTS:
            return self._cost(name)
        if name.startswith("worst_"):
            return self.worst(name.removeprefix("worst_"), self.last_round)
        best = name.startswith("best_")
        round_ = self.best_round if best else self.last_round
        values = self.by_client(name.removeprefix("best_"), round_).values()
        return fmean(values) if values else math.nan

    def _cost(self, name: str) -> float:
        if name == "seconds":
            return sum(self.per_round("seconds").values())
        directions: tuple[Direction, ...] = ("up", "down")
        return float(
            sum(sum(self.bytes(d).values()) for d in directions if name in ("bytes", f"bytes_{d}"))
        )


@dataclass(frozen=True)
class Line:
    """One algorithm and one metric in a comparison; every summary is over seeds."""

    algorithm: str
    metric: str
    higher_is_better: bool
    last: Summary
    """Mean over clients in the last round."""
    best: Summary
    """Mean over clients in the best round by validation."""
    client_std: Summary
    """Standard deviation among clients in the last round."""
    worst: Summary
    """The worst client in the last round."""
    mib_per_round: Summary
    seconds_per_round: Summary
    published: float | None
    """What a paper reports for this algorithm, in its first metric."""


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


def compare_table(
    results: Sequence[Result], published: Mapping[str, float] | None = None
) -> list[Line]:
    """One line per algorithm, and per metric where tasks have different ones."""
    return [
        _line(algorithm, runs, metric, (published or {}).get(algorithm) if place == 0 else None)
        for algorithm, runs in by_algorithm(results).items()
        for place, metric in enumerate(runs[0].own_metrics)
    ]


def _line(algorithm: str, runs: Sequence[Result], metric: str, published: float | None) -> Line:
    def over_seeds(values: Iterable[float]) -> Summary:
        return summarise(list(values))

    def rounds(run: Result) -> int:
        return len(run.per_round("seconds")) or run.last_round

    return Line(
        algorithm=algorithm,
        metric=metric,
        higher_is_better=runs[0].own_metrics[metric],
        last=over_seeds(run.value(metric) for run in runs),
        best=over_seeds(run.value(f"best_{metric}") for run in runs),
        client_std=over_seeds(_client_std(run, metric) for run in runs),
        worst=over_seeds(run.value(f"worst_{metric}") for run in runs),
        mib_per_round=over_seeds(run.value("bytes") / MIB / rounds(run) for run in runs),
        seconds_per_round=over_seeds(run.value("seconds") / rounds(run) for run in runs),
        published=published,
    )


def _client_std(run: Result, metric: str) -> float:
    values = list(run.by_client(metric, run.last_round).values())
    return spread(values, [1.0] * len(values)).std if values else math.nan


def _middle(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    if any(map(math.isnan, values)):
        return math.nan, math.nan, math.nan
    low, _, high = quantiles(values, n=4, method="inclusive")
    return fmean(values), low, high


def _about(folder: Path) -> Mapping[str, Any]:
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; give the folder that a run wrote")
    path = folder / "run.json"
    if not path.is_file():
        raise UsageError(
            f"{folder}: not a run, because it has no run.json; give a run's own folder"
        )
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        missing = [key for key in _REQUIRED if key not in about]
    except (ValueError, TypeError) as error:
        raise Failure(f"{path}: cannot be read; start the run again in a new folder") from error
    if missing:
        raise Failure(f"{path}: {', '.join(missing)} is missing; start the run again")
    return about
