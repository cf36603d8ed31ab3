"""Pictures of what was learnt: over the rounds, and among the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from consort.report.drawing import MANY_CLIENTS, Trace, colour, faint, figure, over_rounds
from consort.report.html import Figure, label
from consort.report.numbers import words
from consort.report.study import Study
from consort.results import Point, Result
from consort.statistics import summarise

_DASHES = ("solid", "dash", "dot", "dashdot")
_GREY = "#8a94a6"


def curves(study: Study, task: str, metric: str, split: str) -> Figure:
    """A metric over the rounds: every algorithm, every one of its models."""
    traces: list[Trace] = []
    for algorithm, runs in study.groups.items():
        for place, model in enumerate(_models(runs, task, metric, split)):
            points = _over_seeds(runs, task, metric, split, model)
            style = _style(study, algorithm, model, place)
            if study.one_run or len(runs) > 1:
                traces += _band(points, style)
            traces.append(_line(points, style))
    return over_rounds(traces, words(metric), **_best_round(study))


def band_meaning(study: Study) -> str:
    """What the coloured area of a curve stands for."""
    if study.one_run:
        return "Lines are means over clients; the area holds the middle half of the clients."
    if any(len(runs) > 1 for runs in study.groups.values()):
        return (
            "Lines are means over clients and seeds; the area is one standard deviation of seeds."
        )
    return "Lines are means over clients."


def _models(runs: Sequence[Result], task: str, metric: str, split: str) -> list[str]:
    """The models that were measured, the reported one first."""
    reported = runs[0].reports
    models = {s.model for run in runs for s in run.series if s[:3] == (task, metric, split)}
    return sorted(models, key=lambda model: (model != reported, model))


def _over_seeds(
    runs: Sequence[Result], task: str, metric: str, split: str, model: str
) -> list[Point]:
    """The curve of one run, or the mean curve over the rounds that all runs have."""
    every = [{p.round: p for p in run.curve(task, metric, split, model)} for run in runs]
    if len(every) == 1:
        return list(every[0].values())
    shared = sorted(set.intersection(*map(set, every)))
    summaries = ((r, summarise([points[r].mean for points in every])) for r in shared)
    return [Point(r, s.mean, s.mean - s.std, s.mean + s.std) for r, s in summaries]


@dataclass(frozen=True)
class _Style:
    name: str
    color: str
    dash: str
    shown: bool

    @property
    def trace(self) -> Trace:
        return {
            "type": "scatter",
            "name": label(self.name),
            "legendgroup": label(self.name),
            "visible": True if self.shown else "legendonly",
        }


def _style(study: Study, algorithm: str, model: str, place: int) -> _Style:
    """Colours tell algorithms apart; if there is only one, its models."""
    dash = _DASHES[place % len(_DASHES)]
    if study.one_algorithm:
        return _Style(f"{model} model", colour(place), dash, shown=True)
    name = f"{algorithm}, {model}" if place else algorithm
    return _Style(name, study.colours[algorithm], dash, shown=place == 0)


def _line(points: Sequence[Point], style: _Style) -> Trace:
    return style.trace | {
        "mode": "lines+markers" if len(points) <= 25 else "lines",
        "x": [p.round for p in points],
        "y": [p.mean for p in points],
        "line": {"color": style.color, "dash": style.dash, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": "round %{x}: %{y:.3f}",
    }


def _band(points: Sequence[Point], style: _Style) -> list[Trace]:
    edge = style.trace | {
        "mode": "lines",
        "x": [p.round for p in points],
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    fill = {"fill": "tonexty", "fillcolor": faint(style.color)}
    return [edge | {"y": [p.low for p in points]}, edge | fill | {"y": [p.high for p in points]}]


def _best_round(study: Study) -> Trace:
    if not study.one_run:
        return {}
    best = study.first.best_round
    line = {"dash": "dot", "width": 1, "color": _GREY}
    ends = {"x0": best, "x1": best, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    text = {"x": best, "y": 0, "xref": "x", "yref": "paper", "text": f"best by validation: {best}"}
    place = {"showarrow": False, "xanchor": "right", "yanchor": "bottom", "xshift": -4}
    return {
        "shapes": [{"type": "line", "line": line} | ends],
        "annotations": [text | place | {"font": {"size": 11, "color": _GREY}}],
    }


def client_spread(study: Study, task: str) -> Figure:
    """One point per client (and seed); of many clients only the box and those outside it."""
    boxes = [
        _box(algorithm, [run for run in runs if task in run.tasks], task, study.colours[algorithm])
        for algorithm, runs in study.groups.items()
    ]
    metric = words(study.tasks[task]["metric"])
    return figure(
        boxes,
        f"{metric} in the last round",
        "",
        height=100 + 56 * len(boxes),
        yaxis={"autorange": "reversed"},
        showlegend=False,
    )


def _box(algorithm: str, runs: Sequence[Result], task: str, color: str) -> Trace:
    values = [pair for run in runs for pair in run.clients_at(run.last_round, task).items()]
    many = any(len(run.clients) > MANY_CLIENTS for run in runs)
    return {
        "type": "box",
        "orientation": "h",
        "name": label(algorithm),
        "x": [value for _, value in values],
        "text": [label(client) for client, _ in values],
        "boxpoints": "outliers" if many else "all",
        "jitter": 0.6,
        "pointpos": 0,
        "marker": {"color": color, "size": 5, "opacity": 0.7},
        "line": {"color": color, "width": 1.5},
        "fillcolor": faint(color),
        "hovertemplate": "%{text}: %{x:.3f}<extra></extra>",
    }
