"""The rows of a history, each where it will be looked for."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from copy import copy
from typing import NamedTuple, TypeAlias

from consort.core.row import Row

Notes: TypeAlias = dict[str, dict[int, dict[str, float]]]
"""Numbers by part, round and client; no part and no client are empty names."""

WORK = ("seconds", "flops")
"""What a client's calls add up to."""


class Series(NamedTuple):
    """What is followed over the rounds."""

    task: str
    metric: str
    split: str
    model: str


class Measurements:
    """What a run wrote down: scores, graphs, bytes, work, notes."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.scores: dict[Series, dict[int, dict[str, tuple[float, int]]]] = defaultdict(dict)
        self.graphs: dict[Series, dict[int, dict[str, dict[str, float]]]] = defaultdict(dict)
        self.bytes: dict[str, Counter[tuple[int, str, str]]] = defaultdict(Counter)
        self.work: dict[str, dict[str, float]] = {name: defaultdict(float) for name in WORK}
        self.notes: dict[str, Notes] = defaultdict(dict)
        for row in rows:
            self._take(row)

    def of(self, clients: Container[str]) -> Measurements:
        """The same, with the scores of some clients only."""
        some = copy(self)
        some.scores = {
            series: {
                number: {client: score for client, score in scores.items() if client in clients}
                for number, scores in rounds.items()
            }
            for series, rounds in self.scores.items()
        }
        return some

    def _take(self, row: Row) -> None:
        series = Series(row.task, row.metric, row.split, row.model)
        if row.split and row.part:
            graphs = self.graphs[series].setdefault(row.round, {})
            graphs.setdefault(row.client, {})[row.part] = row.value
        elif row.split:
            self.scores[series].setdefault(row.round, {})[row.client] = row.value, row.n
        elif row.metric in ("bytes_up", "bytes_down"):
            direction = row.metric.removeprefix("bytes_")
            self.bytes[direction][row.round, row.client, row.part] += int(row.value)
        elif row.client and row.metric in WORK:
            self.work[row.metric][row.client] += row.value
        else:
            rounds = self.notes[row.metric].setdefault(row.part, {})
            rounds.setdefault(row.round, {})[row.client] = row.value
