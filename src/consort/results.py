"""What a run measured, read back from its folder and put in order."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any, Literal, NamedTuple, TypeAlias

from consort.errors import Failure, UsageError
from consort.history import History, Row
from consort.statistics import Spread, spread

TUNED = "tuned"
"""The model after local training that nobody else sees."""

Direction: TypeAlias = Literal["up", "down"]
Aspect: TypeAlias = Literal["round", "client", "role"]
Notes: TypeAlias = dict[str, dict[int, dict[str, float]]]
"""Numbers by part, round and client; no part and no client are empty names."""

_ASPECTS: tuple[Aspect, ...] = ("round", "client", "role")
_COSTS = ("bytes", "bytes_up", "bytes_down", "seconds", "client_seconds")
_MEASURED = {"seconds", "evaluation_seconds", "peak_memory_mib"}
_FIELDS = ("algorithm", "seed", "reports", "tasks", "clients")


class NoResults(Failure):
    """A run that has not come to its first evaluation yet."""


class Series(NamedTuple):
    """What is followed over the rounds."""

    task: str
    metric: str
    split: str
    model: str


class Point(NamedTuple):
    """The clients in one round: their mean and the bounds of their middle half."""

    round: int
    mean: float
    low: float
    high: float


class _Index:
    """The rows of a history, each where it will be looked for."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.scores: dict[Series, dict[int, dict[str, tuple[float, int]]]] = defaultdict(dict)
        self.bytes: dict[str, Counter[tuple[int, str, str]]] = defaultdict(Counter)
        self.client_seconds: dict[str, float] = defaultdict(float)
        self.notes: dict[str, Notes] = defaultdict(dict)
        for row in rows:
            self._take(row)

    def _take(self, row: Row) -> None:
        if row.split:
            series = Series(row.task, row.metric, row.split, row.model)
            self.scores[series].setdefault(row.round, {})[row.client] = row.value, row.n
        elif row.metric in ("bytes_up", "bytes_down"):
            direction = row.metric.removeprefix("bytes_")
            self.bytes[direction][row.round, row.client, row.part] += int(row.value)
        elif row.client and row.metric == "seconds":
            self.client_seconds[row.client] += row.value
        else:
            rounds = self.notes[row.metric].setdefault(row.part, {})
            rounds.setdefault(row.round, {})[row.client] = row.value


@dataclass(frozen=True)
class Result:
    """One run: one algorithm on one federation with one seed, finished or still going."""

    algorithm: str
    """The algorithm's name in the recipe."""
    seed: int
    reports: str
    """Which of the models stands for the algorithm in tables."""
    tasks: Mapping[str, Mapping[str, Any]]
    """Every task with its `metric` and whether `higher_is_better`."""
    clients: Mapping[str, Mapping[str, Any]]
    """What is known of every client."""
    folder: Path
    about: Mapping[str, Any] = field(repr=False)
    """Everything that `run.json` says."""
    _index: _Index = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> Result:
        """Reads a run's folder."""
        about = _about(folder)
        index = _Index(History(folder / "history.jsonl"))
        if not index.scores:
            raise NoResults(
                f"{folder}: no results yet; wait for the first evaluation, "
                f"or go on with `consort resume {folder}`"
            )
        return cls(
            algorithm=about["algorithm"],
            seed=about["seed"],
            reports=about["reports"],
            tasks=about["tasks"],
            clients=about["clients"],
            folder=folder,
            about=about,
            _index=index,
        )

    @property
    def series(self) -> list[Series]:
        """Everything that was measured over the rounds."""
        return sorted(self._index.scores)

    @cached_property
    def evaluated(self) -> list[int]:
        """The rounds with an evaluation."""
        return sorted({round_ for rounds in self._index.scores.values() for round_ in rounds})

    @property
    def rounds_done(self) -> int:
        """How many rounds were trained."""
        return len(self.per_round("seconds")) or self.last_round

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

        With one metric it is the round with the best mean. Several metrics have units of their own,
        so each counts by how far it got from its worst round (0) to its best (1). Without
        validation examples it is the last round.
        """
        merits = [merit for metric in self.own_metrics if (merit := self._merit(metric))]
        if not merits:
            return self.last_round
        return max(self.evaluated, key=lambda r: (sum(merit.get(r, 0.0) for merit in merits), -r))

    def _merit(self, metric: str) -> dict[int, float]:
        means = {r: _mean(self.by_client(metric, r, "validation").values()) for r in self.evaluated}
        means = {r: mean for r, mean in means.items() if not math.isnan(mean)}
        if not means:
            return {}
        low, high = min(means.values()), max(means.values())
        worst, best = (low, high) if self.own_metrics[metric] else (high, low)
        return {r: (mean - worst) / ((best - worst) or 1.0) for r, mean in means.items()}

    def clients_at(
        self, round: int, task: str, metric: str = "", split: str = "test", model: str = ""
    ) -> dict[str, float]:
        """Every client's value in a round; by default the task's own metric, the reported model."""
        scores = self._scores(round, task, metric, split, model)
        return {client: scores[client][0] for client in sorted(scores)}

    def spread(
        self, round: int, task: str, metric: str = "", split: str = "test", model: str = ""
    ) -> Spread:
        """How the clients differ in a round; the arguments are those of `clients_at`."""
        scores = self._scores(round, task, metric, split, model).values()
        if not scores:
            raise Failure(f"{self.folder}: nothing was measured of task {task} in round {round}")
        return spread([value for value, _ in scores], [n for _, n in scores])

    def _scores(
        self, round: int, task: str, metric: str, split: str, model: str
    ) -> dict[str, tuple[float, int]]:
        if task not in self.tasks:
            raise UsageError(f"{self.folder}: no task `{task}`; there are {', '.join(self.tasks)}")
        series = Series(task, metric or self.tasks[task]["metric"], split, model or self.reports)
        return self._index.scores.get(series, {}).get(round, {})

    def curve(
        self, task: str, metric: str = "", split: str = "test", model: str = ""
    ) -> list[Point]:
        """The clients' mean and middle half in every round with an evaluation."""
        rounds = {r: self.clients_at(r, task, metric, split, model) for r in self.evaluated}
        return [
            Point(r, *_middle(list(clients.values()))) for r, clients in rounds.items() if clients
        ]

    def per_round(self, metric: str) -> dict[int, float]:
        """A value of the whole run, such as `seconds` or `peak_memory_mib`, in every round."""
        rounds = self.notes(metric).get("", {})
        return {r: clients[""] for r, clients in sorted(rounds.items()) if "" in clients}

    @property
    def noted(self) -> list[str]:
        """The names under which the algorithm noted numbers."""
        return sorted(self._index.notes.keys() - _MEASURED)

    def notes(self, name: str) -> Notes:
        """What was noted under a name."""
        return self._index.notes.get(name, {})

    def client_seconds(self) -> dict[str, float]:
        """The CPU time of every client, all rounds together."""
        return dict(sorted(self._index.client_seconds.items()))

    def bytes(self, direction: Direction, by: Aspect = "role", role: str = "") -> dict[Any, int]:
        """Bytes that went `up` or `down`, by round, client or role; of one role if it is given."""
        sizes: Counter[Any] = Counter()
        position = _ASPECTS.index(by)
        for key, size in self._index.bytes.get(direction, {}).items():
            if role in ("", key[2]):
                sizes[key[position]] += size
        return dict(sorted(sizes.items()))

    def by_client(
        self, metric: str, round: int, split: str = "test", model: str = ""
    ) -> dict[str, float]:
        """Every client's value of a metric: the mean over its tasks that have this metric."""
        values: dict[str, list[float]] = defaultdict(list)
        for task in self.tasks:
            for client, value in self.clients_at(round, task, metric, split, model).items():
                values[client].append(value)
        return {client: _mean(values[client]) for client in sorted(values)}

    def metric_names(self) -> list[str]:
        """What `value` can be asked for."""
        tested = [s for s in self.series if s.split == "test"]
        metrics = {s.metric for s in tested if s.model == self.reports} | set(self.own_metrics)
        tuned = {s.metric for s in tested if s.model == TUNED}
        own = [metric for metric in self.own_metrics if metric in tuned]
        return [
            *sorted(metrics),
            *(f"best_{metric}" for metric in sorted(metrics)),
            *(f"worst_{metric}" for metric in self.own_metrics),
            *(f"{TUNED}_{metric}" for metric in sorted(tuned)),
            *(f"worst_{TUNED}_{metric}" for metric in own),
            *_COSTS,
        ]

    def value(self, name: str) -> float:
        """One number for a table or a claim.

        `accuracy` is the mean over clients (of the mean over a client's tasks) of the reported
        model on test data in the last round, `best_accuracy` the same in the best round by
        validation, `worst_accuracy` the worst client in the last round; `tuned_accuracy` and
        `worst_tuned_accuracy` are those after local training. `bytes`, `bytes_up`, `bytes_down`,
        `seconds` and `client_seconds` are totals of the run. What diverged is not a number.
        """
        names = self.metric_names()
        if name not in names:
            raise UsageError(f"{self.folder}: no value `{name}`; there are {', '.join(names)}")
        if name in _COSTS:
            return self._cost(name)
        measured = name.removeprefix("best_").removeprefix("worst_")
        metric = measured.removeprefix(f"{TUNED}_")
        round_ = self.best_round if name.startswith("best_") else self.last_round
        model = self.reports if metric == measured else TUNED
        values = self.by_client(metric, round_, model=model).values()
        if name.startswith("worst_") and not math.isnan(_mean(values)):
            return min(values) if self.own_metrics[metric] else max(values)
        return _mean(values)

    def _cost(self, name: str) -> float:
        if name == "client_seconds":
            return math.fsum(self.client_seconds().values())
        if name == "seconds":
            return math.fsum(self.per_round("seconds").values())
        up, down = (sum(self.bytes(direction).values()) for direction in ("up", "down"))
        return float({"bytes": up + down, "bytes_up": up, "bytes_down": down}[name])


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return fmean(numbers) if numbers and all(map(math.isfinite, numbers)) else math.nan


def _middle(values: Sequence[float]) -> tuple[float, float, float]:
    mean = _mean(values)
    if len(values) < 2 or math.isnan(mean):
        return mean, mean, mean
    low, _, high = quantiles(values, n=4, method="inclusive")
    return mean, low, high


def _about(folder: Path) -> Mapping[str, Any]:
    path = folder / "run.json"
    if not path.is_file():
        reason = "there is no run.json in it" if folder.is_dir() else "there is no such folder"
        raise UsageError(f"{folder} holds no run: {reason}")
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        missing = [key for key in _FIELDS if key not in about]
    except (ValueError, TypeError) as error:
        raise Failure(f"{path} is damaged: start the run again in a new folder") from error
    if missing:
        raise Failure(f"{path} says nothing about {', '.join(missing)}: start the run again")
    return about
