"""The gain of federation over local training: Δm, its confidence interval, and who gains."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import TypeAlias

from consort.report.drawing import (
    EVEN,
    GREY,
    LESS,
    MANY_CLIENTS,
    MORE,
    Trace,
    figure,
    height_of,
    matrix,
)
from consort.report.heatmaps import cells
from consort.report.html import Cell, Columns, Figure, Html, details, grid, join, label, plot, table
from consort.report.numbers import UNKNOWN, natural, words
from consort.report.run_set import RunSet
from consort.results.gains import alone_by_seed, client_scores, gain_over, gains_apart, scores
from consort.results.result import Result
from consort.results.summary import confidence_interval

Whose: TypeAlias = tuple[str, str]
"""A client (or a group of clients) and a task."""


@dataclass(frozen=True)
class Gain:
    """Gains in percent, one per seed."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return fmean(self.values) if self.values else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Student's 95 % confidence interval; infinite for one seed."""
        return confidence_interval(self.values)

    @property
    def is_finite(self) -> bool:
        """Whether the mean and the interval are finite."""
        return all(map(math.isfinite, (self.mean, *self.interval)))

    @property
    def cell(self) -> Cell:
        """A table cell with the mean and its interval."""
        if math.isnan(self.mean):
            return Cell(UNKNOWN)
        return Cell(f"{self.mean:+.2f} {self.interval_text}".rstrip(), self.mean)

    @property
    def interval_text(self) -> str:
        """The interval as text; empty if it is infinite."""
        return "[{:+.2f}, {:+.2f}]".format(*self.interval) if self.is_finite else ""


@dataclass(frozen=True)
class _Line:
    algorithm: str
    whole: Gain
    """Δm."""
    apart: dict[Whose, Gain]
    """The gain of every client (or group) and task."""


def gain(run_set: RunSet) -> Html:
    """The section; empty unless algorithms are compared with local training."""
    alone = alone_by_seed(run_set.runs)
    by_client = len(client_scores(run_set.first)) <= MANY_CLIENTS
    lines = [
        _line(algorithm, [(run, alone[run.seed]) for run in runs if run.seed in alone], by_client)
        for algorithm, runs in run_set.groups.items()
        if not any(run in alone.values() for run in runs)
    ]
    lines = [line for line in lines if line.whole.values]
    if not lines:
        return Html("")
    rows = sorted({key for line in lines for key in line.apart}, key=_order)
    who = "clients" if by_client else "groups"
    pictures = grid(
        plot("Δm", _forest(run_set, lines), "Dots are means over seeds, lines 95 % intervals."),
        plot(f"Gain by {who[:-1]} and task", _map(lines, rows), "Percent, mean over seeds."),
    )
    apart = details(f"All tasks of all {who}", _apart(run_set, lines, rows, by_client))
    return join([_whole(lines, next(iter(alone.values())).algorithm), pictures, apart])


def _line(algorithm: str, pairs: Sequence[tuple[Result, Result]], by_client: bool) -> _Line:
    apart: dict[Whose, list[float]] = defaultdict(list)
    for run, alone in pairs:
        for key, value in gains_apart(run, alone, client_scores if by_client else scores).items():
            apart[key].append(value)
    whole = Gain([gain_over(*pair) for pair in pairs])
    return _Line(algorithm, whole, {key: Gain(values) for key, values in apart.items()})


def _order(whose: Whose) -> tuple[list[tuple[int, int, str]], str]:
    return natural(whose[0]), whose[1]


def _whole(lines: Sequence[_Line], alone: str) -> Html:
    best = max((line.whole.mean for line in lines if line.whole.mean == line.whole.mean), default=0)
    columns: Columns[_Line] = {
        "Algorithm": lambda line: line.algorithm,
        "Δm, percent": lambda line: Cell(
            UNKNOWN if math.isnan(line.whole.mean) else f"{line.whole.mean:+.2f}",
            line.whole.mean,
            len(lines) > 1 and line.whole.mean == best,
        ),
        "95 % interval": lambda line: line.whole.interval_text or UNKNOWN,
        "Seeds": lambda line: Cell(str(len(line.whole.values)), len(line.whole.values)),
        "Worse tasks": _losses,
        "Significantly worse tasks": _significant_losses,
        "Worst task": _worst,
    }
    note = (
        f"Δm is the relative improvement of the test values over {alone} with the same seed in the "
        "last round, the mean over the tasks of all groups of clients. A task is worse if its mean "
        "is below 0, and significantly worse if its interval is. Intervals are Student's 95 % "
        "confidence intervals over seeds; a single seed has none."
    )
    return table(lines, columns, note)


def _losses(line: _Line) -> Cell:
    return _count(line, lambda gain: gain.mean < 0)


def _significant_losses(line: _Line) -> Cell:
    return _count(line, lambda gain: gain.is_finite and gain.interval[1] < 0)


def _count(line: _Line, condition: Callable[[Gain], bool]) -> Cell:
    number = sum(map(condition, line.apart.values()))
    return Cell(f"{number} of {len(line.apart)}", number)


def _worst(line: _Line) -> str:
    if not line.apart:
        return UNKNOWN
    whose = min(line.apart, key=lambda key: line.apart[key].mean)
    return f"{' '.join(whose)} {line.apart[whose].mean:+.1f}"


def _forest(run_set: RunSet, lines: Sequence[_Line]) -> Figure:
    """A forest plot: a dot for every algorithm with its interval as a line."""
    margins = [
        line.whole.interval[1] - line.whole.mean if line.whole.is_finite else 0 for line in lines
    ]
    trace: Trace = {
        "type": "scatter",
        "mode": "markers",
        "x": [line.whole.mean for line in lines],
        "y": [label(line.algorithm) for line in lines],
        "error_x": {"type": "data", "array": margins, "color": GREY, "thickness": 1.5},
        "marker": {"size": 9, "color": [run_set.colours[line.algorithm] for line in lines]},
        "hovertemplate": "%{y}: %{x:+.2f}<extra></extra>",
    }
    names = {"type": "category", "autorange": "reversed"}
    ground = {"zeroline": True, "zerolinewidth": 2, "zerolinecolor": GREY}
    height = height_of(2 * len(lines))
    return figure([trace], "Δm in percent", "", height, xaxis=ground, yaxis=names)


def _map(lines: Sequence[_Line], rows: Sequence[Whose]) -> Figure:
    """A heat map of algorithms and tasks: green for gains, red for losses."""
    values = [
        [line.apart[row].mean if row in line.apart else math.nan for line in lines] for row in rows
    ]
    most = max((abs(v) for row in values for v in row if math.isfinite(v)), default=0.0) or 1.0
    columns = [label(line.algorithm) for line in lines]
    trace = cells(columns, [" ".join(row) for row in rows]) | {
        "z": values,
        "zmin": -most,
        "zmax": most,
        "colorscale": [(0, LESS), (0.5, EVEN), (1, MORE)],
        "colorbar": {"thickness": 10, "outlinewidth": 0},
        "texttemplate": "%{z:+.1f}",
        "hovertemplate": "%{y}, %{x}: %{z:+.2f}<extra></extra>",
    }
    return matrix(trace, "", len(rows))


def _apart(run_set: RunSet, lines: Sequence[_Line], rows: Sequence[Whose], by_client: bool) -> Html:
    columns: dict[str, Callable[[Whose], Cell | str]] = {
        "Client" if by_client else "Group": lambda row: row[0],
        "Task": lambda row: row[1],
        "Metric": lambda row: words(run_set.tasks[row[1]]["metric"]),
    }
    for line in lines:
        columns[line.algorithm] = partial(_gain_of, line)
    return table(
        rows, columns, "Relative gain in percent, with its 95 % confidence interval over seeds."
    )


def _gain_of(line: _Line, row: Whose) -> Cell:
    return line.apart[row].cell if row in line.apart else Cell(UNKNOWN)
