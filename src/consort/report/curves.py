"""Learning curves over the rounds, and the distribution over the clients."""

from __future__ import annotations

from collections.abc import Sequence

from consort.report.drawing import (
    DASHES,
    GREY,
    MANY_CLIENTS,
    Style,
    Trace,
    band,
    colour,
    faint,
    figure,
    line,
    over_rounds,
)
from consort.report.html import Figure, label
from consort.report.numbers import words
from consort.report.run_set import RunSet
from consort.results.result import Point, Result
from consort.results.summary import summarise


def curves(run_set: RunSet, task: str, metric: str, split: str) -> Figure:
    """A metric over the rounds, for every algorithm and each of its models.

    Args:
        run_set: The runs.
        task: The task.
        metric: The metric.
        split: `test` or `validation`.
    """
    traces: list[Trace] = []
    for algorithm, runs in run_set.groups.items():
        for place, model in enumerate(_models(runs, task, metric, split)):
            points = over_seeds([run.curve(task, metric, split, model) for run in runs])
            style = _style(run_set, algorithm, model, place)
            if run_set.one_run or len(runs) > 1:
                traces += band(points, style)
            traces.append(line(points, style))
    return over_rounds(traces, words(metric), **_best_round(run_set))


def band_meaning(run_set: RunSet) -> str:
    """A note that explains the coloured area of a curve."""
    if run_set.one_run:
        return "Lines are means over clients; the area contains the middle half of the clients."
    if any(len(runs) > 1 for runs in run_set.groups.values()):
        return (
            "Lines are means over clients and seeds; the area shows one standard deviation over "
            "seeds."
        )
    return "Lines are means over clients."


def _models(runs: Sequence[Result], task: str, metric: str, split: str) -> list[str]:
    """The models that were evaluated, the reported one first."""
    reported = runs[0].reports
    models = {s.model for run in runs for s in run.series if s[:3] == (task, metric, split)}
    return sorted(models, key=lambda model: (model != reported, model))


def over_seeds(curves: Sequence[Sequence[Point]]) -> list[Point]:
    """The curve of one run, or the mean curve over the rounds that all runs share."""
    if len(curves) == 1:
        return list(curves[0])
    every = [{p.round: p for p in points} for points in curves]
    shared = sorted(set.intersection(*map(set, every)))
    summaries = ((r, summarise([points[r].mean for points in every])) for r in shared)
    return [Point(r, s.mean, s.mean - s.std, s.mean + s.std) for r, s in summaries]


def _style(run_set: RunSet, algorithm: str, model: str, place: int) -> Style:
    """Colours distinguish algorithms or, if there is only one, its models."""
    dash = DASHES[place % len(DASHES)]
    if run_set.one_algorithm:
        return Style(f"{model} model", colour(place), dash)
    name = f"{algorithm}, {model}" if place else algorithm
    return Style(name, run_set.colours[algorithm], dash, shown=place == 0)


def _best_round(run_set: RunSet) -> Trace:
    if not run_set.one_run:
        return {}
    best = run_set.first.best_round
    line = {"dash": "dot", "width": 1, "color": GREY}
    ends = {"x0": best, "x1": best, "y0": 0, "y1": 1, "xref": "x", "yref": "paper"}
    text = {"x": best, "y": 0, "xref": "x", "yref": "paper", "text": f"best on validation: {best}"}
    place = {"showarrow": False, "xanchor": "right", "yanchor": "bottom", "xshift": -4}
    return {
        "shapes": [{"type": "line", "line": line} | ends],
        "annotations": [text | place | {"font": {"size": 11, "color": GREY}}],
    }


def client_spread(run_set: RunSet, task: str) -> Figure:
    """One point per client (and seed); for many clients only the box and the outliers."""
    boxes = [
        _box(
            algorithm, [run for run in runs if task in run.tasks], task, run_set.colours[algorithm]
        )
        for algorithm, runs in run_set.groups.items()
    ]
    metric = words(run_set.tasks[task]["metric"])
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
