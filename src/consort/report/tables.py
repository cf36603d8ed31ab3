"""The tables of a report: tasks, clients, costs and runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TypeAlias

from consort.report.costs import client_gflops, role_mib, roles
from consort.report.html import Cell, Columns, Html, table
from consort.report.numbers import amount, count, natural, score, summary, words
from consort.report.run_set import RunSet
from consort.results.result import Result
from consort.results.summary import Spread, summarise

MANY_ROWS = 1000

ClientTask: TypeAlias = tuple[str, str]


@dataclass(frozen=True)
class _TaskLine:
    task: str
    algorithm: str
    model: str
    runs: Sequence[Result]

    def measured(self, split: str, best: bool = False) -> list[Spread]:
        """The spread over clients, in every run that evaluated this."""
        found = []
        for run in self.runs:
            place = (run.best_round if best else run.last_round, self.task, "", split, self.model)
            if self.task in run.tasks and run.clients_at(*place):
                found.append(run.spread(*place))
        return found

    def mean(self, split: str, best: bool = False) -> Cell:
        """The mean over clients and seeds."""
        return _over([spread.mean for spread in self.measured(split, best)])

    @property
    def deviation(self) -> Cell:
        """The standard deviation over clients in the last round."""
        return _over([spread.std for spread in self.measured("test")])

    @property
    def range(self) -> Cell:
        """From the lowest to the highest client in the last round."""
        spreads = self.measured("test")
        if not spreads:
            return score(math.nan)
        low, high = fmean(s.min for s in spreads), fmean(s.max for s in spreads)
        return Cell(f"{low:.3f} to {high:.3f}", low)


def task_table(run_set: RunSet) -> Html:
    """A table with a row for each task, algorithm and model."""
    lines = [
        _TaskLine(task, algorithm, model, runs)
        for task in run_set.tasks
        for algorithm, runs in run_set.groups.items()
        for model in sorted({s.model for run in runs for s in run.series if s.task == task})
    ]
    columns: Columns[_TaskLine] = {
        "Task": lambda line: line.task,
        "Metric": lambda line: words(run_set.tasks[line.task]["metric"]),
        "Algorithm": lambda line: line.algorithm,
        "Model": lambda line: _marked(line.model, line.runs[0].reports),
        "Test, last": lambda line: line.mean("test"),
        "Test, best": lambda line: line.mean("test", best=True),
        "Validation, last": lambda line: line.mean("validation"),
        "Std over clients": lambda line: line.deviation,
        "Lowest to highest client": lambda line: line.range,
    }
    note = (
        "● marks the model that the algorithm reports; “best” is the best round on validation data."
    )
    return table(lines, columns, note)


def _marked(model: str, reported: str) -> str:
    return f"{model} ●" if model == reported else model


def client_table(run_set: RunSet) -> Html:
    """A table with a row for each client and task: its data, its model and its results."""
    known = run_set.first.clients
    learnt = {task for client in known.values() for task in client["tasks"]}
    examined = [task for task in run_set.tasks if task not in learnt]
    lines = [
        (c, task) for c in sorted(known, key=natural) for task in (*known[c]["tasks"], *examined)
    ]
    columns: dict[str, Callable[[ClientTask], Cell | str]] = {
        "Client": lambda line: line[0],
        "Group": lambda line: str(known[line[0]]["group"]),
        "Model": lambda line: str(known[line[0]]["model"]),
        "Task": lambda line: line[1],
        "Train": lambda line: count(known[line[0]]["train"]),
        "Test": lambda line: count(known[line[0]]["test"]),
    }
    for algorithm, runs in run_set.groups.items():
        last, best = (
            ("Last", "Best") if run_set.one_algorithm else (algorithm, f"{algorithm}, best")
        )
        columns[last] = partial(_look_up, _client_values(runs, best=False))
        columns[best] = partial(_look_up, _client_values(runs, best=True))
    return table(lines[:MANY_ROWS], columns, _client_note(run_set, len(lines)))


def _client_values(runs: Sequence[Result], best: bool) -> Mapping[ClientTask, list[float]]:
    values: dict[ClientTask, list[float]] = defaultdict(list)
    for run in runs:
        for task in run.tasks:
            round_ = run.best_round if best else run.last_round
            for client, value in run.clients_at(round_, task).items():
                values[client, task].append(value)
    return values


def _look_up(values: Mapping[ClientTask, list[float]], line: ClientTask) -> Cell:
    found = values.get(line)
    return score(fmean(found) if found else math.nan)


def _client_note(run_set: RunSet, lines: int) -> str:
    notes = ["Test values in the last round, and in the best round on validation data."]
    if not run_set.one_run:
        notes.append("Means over seeds.")
    if lines > MANY_ROWS:
        notes.append(f"The first {MANY_ROWS:,} of {lines:,} rows; all are in history.jsonl.")
    return " ".join(notes)


def _over(values: Sequence[float]) -> Cell:
    return summary(summarise(values)) if values else score(math.nan)


def traffic_table(run_set: RunSet) -> Html:
    """A table of the traffic of each algorithm, by role."""
    lines = [(name, role) for name, runs in run_set.groups.items() for role in roles(runs)]
    columns: Columns[tuple[str, str]] = {
        "Algorithm": lambda line: line[0],
        "Role": lambda line: line[1],
        "MiB up": lambda line: amount(role_mib(run_set, line[0], "up", line[1])),
        "MiB down": lambda line: amount(role_mib(run_set, line[0], "down", line[1])),
    }
    return table(
        lines, columns, "Sums over the whole run and all clients; up is what the clients sent."
    )


def time_table(run_set: RunSet) -> Html:
    """A table of the time and memory of each algorithm."""

    def over_seeds(measure: Callable[[Result], float]) -> Callable[[str], Cell]:
        return lambda algorithm: amount(run_set.over_seeds(algorithm, measure).mean)

    columns: dict[str, Callable[[str], Cell | str]] = {
        "Algorithm": str,
        "Seconds per round": over_seeds(lambda run: _mean(run, "seconds")),
        "Seconds per evaluation": over_seeds(lambda run: _mean(run, "evaluation_seconds")),
        "Seconds in all rounds": over_seeds(lambda run: run.value("seconds")),
        "Peak memory, MiB": over_seeds(_peak_memory),
        "GFLOPs of a client per round": over_seeds(client_gflops),
    }
    if not any(run.client_flops() for run in run_set.runs):
        columns.pop("GFLOPs of a client per round")
    return table(run_set.groups, columns)


def _mean(run: Result, metric: str) -> float:
    values = run.per_round(metric).values()
    return fmean(values) if values else math.nan


def _peak_memory(run: Result) -> float:
    return max(run.per_round("peak_memory_mib").values(), default=math.nan)


def run_table(run_set: RunSet) -> Html:
    """A table of the runs and their folders."""
    columns: Columns[Result] = {
        "Algorithm": lambda run: run.algorithm,
        "Seed": lambda run: count(run.seed),
        "Rounds": lambda run: Cell(f"{run.rounds_done} of {run.about['rounds']}", run.rounds_done),
        "Best round": lambda run: count(run.best_round),
        "Workers": lambda run: count(run.about["workers"]),
        "Partition": lambda run: str(run.about["partition"]),
        "Folder": lambda run: str(run.folder),
    }
    return table(run_set.runs, columns)
