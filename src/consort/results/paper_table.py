"""A table for a paper: mean ± std of every algorithm, the best in bold, with significance marks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.results.result import Result
from consort.results.significance import LEVEL, PAIRED, Friedman, TestName, friedman, holm
from consort.results.summary import Summary, mean, summarise
from consort.results.values import by_client, is_higher_better

Over: TypeAlias = Literal["seeds", "clients", "folders"]
Experiments: TypeAlias = Mapping[str, Sequence[Result]]
"""Runs by the name of their experiment."""
_Blocks: TypeAlias = dict[str, dict[str, float]]
"""By algorithm, and by seed, client or folder: one value."""

ALL = "all"
"""The column over all experiments."""


@dataclass(frozen=True)
class PaperCell:
    """One number of a table."""

    values: Summary
    """Over seeds; over experiments in the column over all of them."""
    best: bool
    """Whether no other algorithm is better in this column."""
    probability: float | None = None
    """That the difference to the algorithm compared with is chance; corrected; None if untested."""
    significant: bool = False
    """Whether it differs significantly from the algorithm compared with."""


@dataclass(frozen=True)
class PaperColumn:
    """One metric in one experiment."""

    experiment: str
    """The name of the experiment; empty if there is one only."""
    metric: str
    higher_is_better: bool
    cells: Mapping[str, PaperCell]
    """By algorithm."""
    against: str = ""
    """The algorithm that the others are compared with; empty if nothing was tested."""
    ranking: Friedman | None = None
    """Friedman's test, if that was asked for."""
    notes: Sequence[str] = ()
    """What a reader must know about its test."""


@dataclass(frozen=True)
class PaperTable:
    """Algorithms in rows, metrics and experiments in columns."""

    algorithms: Sequence[str]
    columns: Sequence[PaperColumn]
    notes: Sequence[str] = field(default_factory=list)
    """What a reader must know: the test, and how much it can tell."""


def experiments_of(folders: Mapping[Path, Sequence[Result]]) -> dict[str, list[Result]]:
    """Sorts runs into experiments.

    Folders that hold runs of the same algorithm and seed are experiments of their own, such as data
    sets. Otherwise all runs belong to one.

    Args:
        folders: The runs of every folder that a user names.
    """
    runs = [run for found in folders.values() for run in found]
    if len({(run.algorithm, run.seed) for run in runs}) == len(runs):
        return {"": runs}
    for folder, found in folders.items():
        seen = [(run.algorithm, run.seed) for run in found]
        for algorithm, seed in seen:
            if seen.count((algorithm, seed)) > 1:
                raise UsageError(
                    f"{folder} holds several runs of {algorithm} with seed {seed}: name the folders"
                    " of the experiments one by one"
                )
    named = {folder.resolve().name: list(found) for folder, found in folders.items()}
    return named if len(named) == len(folders) else {str(f): list(r) for f, r in folders.items()}


def paper_table(
    experiments: Experiments,
    metrics: Sequence[str] = (),
    test: TestName | None = None,
    over: Over = "seeds",
    against: str = "",
) -> PaperTable:
    """Puts runs into a table, and tests whether algorithms differ.

    Args:
        experiments: The runs, as `experiments_of` sorts them.
        metrics: What `Result.value` can be asked for; if empty, the metrics that stand for tasks.
        test: The test, if any. Paired tests compare every algorithm with one other, corrected by
            Holm's method in every column; Friedman's ranks them all.
        over: What is paired: seeds, clients (each with its mean over seeds), or experiments (each
            with its mean over seeds), which have a column of their own.
        against: The algorithm that others are compared with; if empty, the best of a column.

    Raises:
        UsageError: A metric was not measured, or a test is not possible.
    """
    every = [run for runs in experiments.values() for run in runs]
    names = list(dict.fromkeys(run.algorithm for run in every))
    if against and against not in names:
        raise UsageError(f"--against: there are no runs of {did_you_mean(against, names)}")
    if over == "folders" and len(experiments) < 2:
        raise UsageError("--over folders: name the folders of several experiments")
    asked = list(metrics) or list(dict.fromkeys(m for run in every for m in run.own_metrics))
    columns: list[PaperColumn] = []
    for metric in asked:
        for experiment, runs in experiments.items():
            column = _column(experiment, metric, _by_seed(runs, metric), runs[0])
            if test and over != "folders":
                blocks = (_by_client if over == "clients" else _by_seed)(runs, metric)
                column = _tested(column, blocks, test, over, against)
            columns.append(column)
        if over == "folders":
            means = _by_experiment(experiments, metric)
            column = _column(ALL, metric, means, every[0])
            columns.append(_tested(column, means, test, over, against) if test else column)
    told = (note for column in columns for note in column.notes)
    return PaperTable(names, columns, list(dict.fromkeys([*_meaning(test, over, against), *told])))


def _column(experiment: str, metric: str, values: _Blocks, run: Result) -> PaperColumn:
    higher = is_higher_better(run, metric)
    summaries = {name: summarise(list(found.values())) for name, found in values.items()}
    known = [s.mean for s in summaries.values() if math.isfinite(s.mean)]
    top = (max if higher else min)(known, default=math.nan)
    cells = {name: PaperCell(s, s.mean == top and len(known) > 1) for name, s in summaries.items()}
    return PaperColumn(experiment, metric, higher, cells)


def _tested(
    column: PaperColumn, blocks: _Blocks, test: TestName, over: Over, against: str
) -> PaperColumn:
    known = [name for name, cell in column.cells.items() if math.isfinite(cell.values.mean)]
    if len(known) < 2 or (against and against not in known):
        return column
    rival = against or next(name for name in known if column.cells[name].best)
    values = _paired({name: blocks[name] for name in known}, over)
    others = [name for name in known if name != rival]
    if test == "friedman":
        ranking = friedman(values, column.higher_is_better)
        differ = {name: ranking.differ(name, rival) for name in others}
        cells = {n: replace(c, significant=differ.get(n, False)) for n, c in column.cells.items()}
        notes = [_friedman_note(column, ranking)]
        return replace(column, cells=cells, against=rival, ranking=ranking, notes=notes)
    found = holm({name: PAIRED[test](values[rival], values[name]) for name in others})
    cells = {
        name: replace(cell, probability=found.get(name), significant=found.get(name, 1.0) < LEVEL)
        for name, cell in column.cells.items()
    }
    notes = _too_few(len(values[rival]), len(others)) if test == "wilcoxon" else []
    return replace(column, cells=cells, against=rival, notes=notes)


def _too_few(pairs: int, comparisons: int) -> list[str]:
    """Says so if Wilcoxon's test cannot find any difference, however large."""
    smallest = comparisons * 2.0 ** (1 - pairs)
    if smallest < LEVEL:
        return []
    return [
        f"With {pairs} pairs and {comparisons} comparisons, no p of Wilcoxon's test is below "
        f"{min(1.0, smallest):.3g}: use more seeds, --over clients or --test t."
    ]


def _by_seed(runs: Sequence[Result], metric: str) -> _Blocks:
    found: _Blocks = {}
    for run in sorted(runs, key=lambda run: run.seed):
        found.setdefault(run.algorithm, {})[f"seed {run.seed}"] = run.value(metric)
    return {name: found[name] for name in dict.fromkeys(run.algorithm for run in runs)}


def _by_client(runs: Sequence[Result], metric: str) -> _Blocks:
    values: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        for client, value in by_client(run, metric).items():
            values.setdefault(run.algorithm, {}).setdefault(client, []).append(value)
    return {a: {c: mean(v) for c, v in clients.items()} for a, clients in values.items()}


def _by_experiment(experiments: Experiments, metric: str) -> _Blocks:
    found: _Blocks = {}
    for experiment, runs in experiments.items():
        for name, values in _by_seed(runs, metric).items():
            found.setdefault(name, {})[experiment] = mean(values.values())
    return found


def _paired(blocks: _Blocks, over: Over) -> dict[str, list[float]]:
    """The values of all algorithms on what all of them have, in the same order."""
    common = set.intersection(*(set(values) for values in blocks.values()))
    common = {b for b in common if all(math.isfinite(values[b]) for values in blocks.values())}
    if not common:
        raise UsageError(f"the algorithms have no {over} in common: nothing can be paired")
    return {name: [values[block] for block in sorted(common)] for name, values in blocks.items()}


def _meaning(test: TestName | None, over: Over, against: str) -> list[str]:
    if test is None:
        return []
    what = {"t": "Student's paired t-test", "wilcoxon": "Wilcoxon's signed-rank test"}
    rival = against or "the best"
    if test == "friedman":
        how = "Friedman's test and Nemenyi's critical difference"
    else:
        how = f"{what[test]}, corrected by Holm's method"
    return [f"*: differs from {rival} (p < {LEVEL}; {how}, paired over {over})."]


def _friedman_note(column: PaperColumn, found: Friedman) -> str:
    where = " ".join(filter(None, (column.experiment, column.metric)))
    ranks = ", ".join(f"{name} {rank:.2f}" for name, rank in found.ranks.items())
    return (
        f"{where}: χ² = {found.statistic:.3f}, p = {found.probability:.3g}, critical difference "
        f"{found.critical_difference:.3f} over {found.blocks}; average ranks: {ranks}."
    )
