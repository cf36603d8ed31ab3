"""The page about a search: what was tried, what was chosen, and score against cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from consort.experiment.trials import Trial, fronts
from consort.report.document import write_page
from consort.report.drawing import GREY, Trace, colour, figure
from consort.report.html import Cell, Columns, Figure, grid, label, plot, table
from consort.report.numbers import UNKNOWN, amount, summary
from consort.results.table import MIB

_COSTS = {"bytes": ("MiB sent in a run", MIB), "seconds": ("seconds of a run", 1)}
_NOTE = (
    "One dot per setting, the mean over the seeds of the search; a line connects the settings that "
    "no other one beats in both."
)


def write_tuning(
    trials: Sequence[Trial],
    best: Mapping[str, Trial],
    path: Path,
    title: str,
    higher_is_better: bool = True,
) -> Path:
    """Writes the page about a search.

    Args:
        trials: What was tried.
        best: The best trial of every algorithm.
        path: The file to write.
        title: The title of the recipe.
        higher_is_better: Of the deciding metric.

    Returns:
        The path.
    """
    pictures = (
        plot(f"Score against {cost}", pareto_plot(trials, cost, higher_is_better), _NOTE)
        for cost in _COSTS
    )
    each = len(trials) // max(1, len(best))
    return write_page(
        path,
        f"{title or 'A search'}: tuning",
        f"{len(best)} algorithms · {each} settings each · chosen by validation data",
        {
            "Chosen settings": _table(list(best.values()), best),
            "Score against cost": grid(*pictures),
            "All settings": _table(trials, best),
        },
    )


def pareto_plot(trials: Sequence[Trial], cost: str, higher_is_better: bool) -> Figure:
    """The validation score of every setting against its cost, with the Pareto front.

    Args:
        trials: What was tried.
        cost: `bytes` or `seconds`.
        higher_is_better: Of the deciding metric.
    """
    words, unit = _COSTS[cost]

    def points(some: Sequence[Trial]) -> Trace:
        known = [trial for trial in some if trial.validation]
        return {
            "type": "scatter",
            "x": [getattr(trial, cost) / unit for trial in known],
            "y": [trial.validation.mean for trial in known if trial.validation],
            "text": [label(f"{trial.algorithm}: {_setting(trial)}") for trial in known],
        }

    line = points(fronts(trials, higher_is_better)[cost]) | {
        "mode": "lines",
        "name": "Pareto front",
        "line": {"color": GREY, "shape": "hv" if higher_is_better else "vh"},
        "hoverinfo": "skip",
    }
    names = list(dict.fromkeys(trial.algorithm for trial in trials))
    dots = [
        points([trial for trial in trials if trial.algorithm == name])
        | {
            "mode": "markers",
            "name": label(name),
            "marker": {"color": colour(place), "size": 8},
            "hovertemplate": "%{text}<br>%{y:.4f}<extra></extra>",
        }
        for place, name in enumerate(names)
    ]
    return figure([line, *dots], words, "validation score")


def _table(trials: Sequence[Trial], best: Mapping[str, Trial]) -> str:
    columns: Columns[Trial] = {
        "Algorithm": lambda trial: trial.algorithm,
        "Setting": _setting,
        "Validation": lambda trial: (
            summary(trial.validation, trial == best.get(trial.algorithm))
            if trial.validation
            else Cell(UNKNOWN)
        ),
        "MiB": lambda trial: amount(trial.bytes / MIB),
        "Seconds": lambda trial: amount(trial.seconds),
        "Failed": lambda trial: trial.error,
    }
    if not any(trial.error for trial in trials):
        columns = {name: show for name, show in columns.items() if name != "Failed"}
    return table(trials, columns)


def _setting(trial: Trial) -> str:
    return ", ".join(f"{key} = {value}" for key, value in trial.point.items()) or "as in the recipe"
