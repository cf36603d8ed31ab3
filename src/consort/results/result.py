"""What a run measured, read back from its folder and put in order."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from consort.core.registry import did_you_mean
from consort.errors import Failure, UsageError
from consort.results.measurements import Measurements, Notes, Series
from consort.results.summary import Spread, mean, middle, spread
from consort.results.values import values_of
from consort.run.folder import read_description, read_history

Direction: TypeAlias = Literal["up", "down"]
Aspect: TypeAlias = Literal["round", "client", "role"]
_ASPECTS: tuple[Aspect, ...] = ("round", "client", "role")
_MEASURED = {"seconds", "evaluation_seconds", "peak_memory_mib"}


class NoResults(Failure):
    """A run that has not come to its first evaluation yet."""


class Point(NamedTuple):
    """The clients in one round: their mean and the bounds of their middle half."""

    round: int
    mean: float
    low: float
    high: float


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
    _measured: Measurements = field(repr=False)

    @classmethod
    def load(cls, folder: Path) -> Result:
        """Reads a run's folder."""
        about = read_description(folder)
        measured = Measurements(read_history(folder))
        if not measured.scores:
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
            _measured=measured,
        )

    def only(self, group: str = "", task: str = "") -> Result:
        """The same run, as if it had only the clients of a group, or only one task."""
        tasks = {name: about for name, about in self.tasks.items() if task in ("", name)}
        if not group:
            return replace(self, tasks=tasks)
        clients = {c: about for c, about in self.clients.items() if about["group"] == group}
        return replace(self, clients=clients, tasks=tasks, _measured=self._measured.of(clients))

    @property
    def series(self) -> list[Series]:
        """Everything that was measured over the rounds."""
        return sorted(self._measured.scores)

    @cached_property
    def evaluated(self) -> list[int]:
        """The rounds with an evaluation."""
        return sorted({round_ for rounds in self._measured.scores.values() for round_ in rounds})

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

    @property
    def average_rounds(self) -> int:
        """Over how many of the last rounds values are taken, as the recipe says."""
        return int(self.about["recipe"].get("average_rounds", 1))

    @property
    def last_rounds(self) -> list[int]:
        """The rounds that count at the end: those among the last few with an evaluation."""
        before = self.last_round - self.average_rounds
        return [round_ for round_ in self.evaluated if round_ > before]

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
        means = {r: mean(self.by_client(metric, r, "validation").values()) for r in self.evaluated}
        means = {r: value for r, value in means.items() if not math.isnan(value)}
        if not means:
            return {}
        low, high = min(means.values()), max(means.values())
        worst, best = (low, high) if self.own_metrics[metric] else (high, low)
        return {r: (value - worst) / ((best - worst) or 1.0) for r, value in means.items()}

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
        return self._measured.scores.get(series, {}).get(round, {})

    def curve(
        self, task: str, metric: str = "", split: str = "test", model: str = ""
    ) -> list[Point]:
        """The clients' mean and middle half in every round with an evaluation."""
        rounds = {r: self.clients_at(r, task, metric, split, model) for r in self.evaluated}
        return [
            Point(r, *middle(list(clients.values()))) for r, clients in rounds.items() if clients
        ]

    def per_round(self, metric: str) -> dict[int, float]:
        """A value of the whole run, such as `seconds` or `peak_memory_mib`, in every round."""
        rounds = self.notes(metric).get("", {})
        return {r: clients[""] for r, clients in sorted(rounds.items()) if "" in clients}

    @property
    def noted(self) -> list[str]:
        """The names under which the algorithm noted numbers."""
        return sorted(self._measured.notes.keys() - _MEASURED)

    def notes(self, name: str) -> Notes:
        """What was noted under a name."""
        return self._measured.notes.get(name, {})

    def client_seconds(self) -> dict[str, float]:
        """The CPU time of every client, all rounds together."""
        return dict(sorted(self._measured.work["seconds"].items()))

    def client_flops(self) -> dict[str, float]:
        """The operations of every client in all rounds together, if they were counted."""
        return dict(sorted(self._measured.work["flops"].items()))

    def bytes(self, direction: Direction, by: Aspect = "role", role: str = "") -> dict[Any, int]:
        """Bytes that went `up` or `down`, by round, client or role; of one role if it is given."""
        sizes: Counter[Any] = Counter()
        position = _ASPECTS.index(by)
        for key, size in self._measured.bytes.get(direction, {}).items():
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
        return {client: mean(values[client]) for client in sorted(values)}

    def over_last_rounds(
        self, metric: str, split: str = "test", model: str = ""
    ) -> dict[str, float]:
        """Every client's mean value of a metric over the rounds that count at the end."""
        values: dict[str, list[float]] = defaultdict(list)
        for round_ in self.last_rounds:
            for client, value in self.by_client(metric, round_, split, model).items():
                values[client].append(value)
        return {client: mean(values[client]) for client in sorted(values)}

    def examples(self, split: str = "test") -> dict[str, int]:
        """How many examples every client is scored with."""
        series = (rounds for s, rounds in self._measured.scores.items() if s.split == split)
        clients = (clients for rounds in series for clients in rounds.values())
        return {client: n for scores in clients for client, (_, n) in scores.items()}

    def graph(
        self, task: str, metric: str, split: str = "test", model: str = ""
    ) -> dict[str, dict[str, float]]:
        """A curve of every client, such as `wd_det`, as points in the last round that has it."""
        rounds = self._measured.graphs.get(Series(task, metric, split, model or self.reports), {})
        return dict(sorted(rounds[max(rounds)].items())) if rounds else {}

    def frame(self) -> Any:
        """All rows of the history as a data frame of pandas or polars, whichever is there.

        Raises:
            UsageError: Neither is installed.
        """
        from consort.results.frames import history_frame

        return history_frame([self])

    def metric_names(self) -> list[str]:
        """What `value` can be asked for."""
        return list(values_of(self))

    def value(self, name: str) -> float:
        """One number for a table or a claim.

        `accuracy` is the mean over clients (of the mean over a client's tasks) of the reported
        model on test data at the end: in the last round, or over as many rounds as the recipe's
        `average_rounds` says. `worst_accuracy` is the worst client, `weighted_accuracy` the mean
        weighted by test examples, `spread_accuracy` the standard deviation over clients,
        `best_accuracy` the mean in the best round by validation.
        `tuned_accuracy` and `worst_tuned_accuracy` are those after local training,
        `unseen_others_wd_eer` is of users that no client trains on. `bytes`, `bytes_up`,
        `bytes_down`, `seconds`, `client_seconds` and, if they were counted, `flops` are totals of
        the run. What diverged is not a number.
        """
        values = values_of(self)
        if name not in values:
            raise UsageError(f"{self.folder}: no value {did_you_mean(name, values)}")
        return values[name](self)
