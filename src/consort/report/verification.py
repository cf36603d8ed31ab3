"""The verification of signatures: a table of error rates, and DET curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from statistics import NormalDist, fmean

from consort.metrics.biometric import ErrorCurve
from consort.report.drawing import GREY, Trace, colour, figure
from consort.report.html import Cell, Columns, Figure, Html, grid, join, label, plot, table
from consort.report.numbers import score, summary, words
from consort.report.run_set import RunSet
from consort.results.summary import summarise
from consort.results.values import UNSEEN

TASK, CURVE = "verify", "wd_det"

_SHOWN = ("wd_eer", "wd_far", "wd_frr", "wd_auc", "wd_eer_global", "wd_tar_at_1pct")
_FOR_UNSEEN = ("wd_eer", "wd_auc")
_TICKS = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99)
_LEAST = 0.0008
"""Smaller rates are drawn at the edge of the plot."""
_NOTE = (
    "Means over clients and seeds in the last round; lower is better. The equal error rate is "
    "where a curve crosses the dotted line. Rates below 0.1 % are drawn at 0.1 %."
)


def verification(run_set: RunSet) -> Html:
    """The section: a table of all algorithms, and a plot for every split with curves."""
    if TASK not in run_set.tasks:
        return join([])
    unseen = sorted({s.split for run in run_set.runs for s in run.series if _is_unseen(s.split)})
    pictures = [
        plot(f"DET curves: {_who(split)}", det_curves(run_set, split), _NOTE)
        for split in ("test", *unseen)
        if any(run.graph(TASK, CURVE, split) for run in run_set.runs)
    ]
    return join([_table(run_set, unseen), grid(*pictures) if pictures else None])


def _is_unseen(split: str) -> bool:
    return split.startswith(UNSEEN)


def _who(split: str) -> str:
    if split == "test":
        return "the clients' own users"
    return f"unseen users ({words(split.removeprefix(UNSEEN))})"


def _table(run_set: RunSet, unseen: Sequence[str]) -> Html:
    names = [*_SHOWN, *(f"{split}_{metric}" for split in unseen for metric in _FOR_UNSEEN)]
    columns: Columns[str] = {
        "Algorithm": str,
        **{_head(name): partial(_value, run_set, name) for name in names},
    }
    rounds = max(run.average_rounds for run in run_set.runs)
    when = "in the last round" if rounds == 1 else f"in the last {rounds} rounds"
    note = f"Means over clients: own users {when}, unseen users in the last; thresholds per user."
    return table(run_set.groups, columns, note)


def _head(name: str) -> str:
    return words(name.replace("wd_", "")).replace("global", "one threshold")


def _value(run_set: RunSet, name: str, algorithm: str) -> Cell:
    runs = [run for run in run_set.groups[algorithm] if name in run.metric_names()]
    return summary(summarise([run.value(name) for run in runs])) if runs else score(math.nan)


def det_curves(run_set: RunSet, split: str) -> Figure:
    """DET curves: the false rejection rate at each false acceptance rate, for every algorithm."""
    traces = [_diagonal()]
    for algorithm, runs in run_set.groups.items():
        curves = [c for run in runs for c in run.graph(TASK, CURVE, split).values() if c]
        if curves:
            traces.append(_line(algorithm, run_set.colours[algorithm], _mean_curve(curves)))
    return _det_plot(traces, "forgeries accepted (FAR)", "genuine signatures rejected (FRR)")


def det_plot(curves: Mapping[str, ErrorCurve]) -> Figure:
    """DET curves on axes of normal deviates (Martin et al. 1997).

    Args:
        curves: The error rates at every threshold, by the name of the curve.
    """
    traces = [_diagonal()]
    for number, (name, curve) in enumerate(curves.items()):
        points = dict(zip(curve.far.tolist(), curve.frr.tolist(), strict=True))
        traces.append(_line(name, colour(number), points) | {"mode": "lines"})
    return _det_plot(traces, "false match rate (FMR)", "false non-match rate (FNMR)")


def _det_plot(traces: list[Trace], x: str, y: str) -> Figure:
    ticks = {
        "tickvals": [_deviate(rate) for rate in _TICKS],
        "ticktext": [f"{100 * rate:g} %" for rate in _TICKS],
        "zeroline": False,
    }
    bounds = {"range": [_deviate(_LEAST), _deviate(0.55)]}
    return figure(
        traces,
        x,
        y,
        height=420,
        xaxis=ticks | bounds,
        yaxis=ticks | {"range": [_deviate(_LEAST), _deviate(1.0) + 0.1]},
    )


def _mean_curve(curves: Sequence[Mapping[str, float]]) -> dict[float, float]:
    """The mean of curves, at the points that most of them have; clients may have sent others."""
    counts = Counter(far for curve in curves for far in curve)
    points = {}
    for far in (far for far, count in counts.items() if 2 * count > len(curves)):
        rates = [curve[far] for curve in curves if math.isfinite(curve.get(far, math.nan))]
        with suppress(ValueError):
            points[float(far)] = fmean(rates)
    return points


def _line(name: str, color: str, points: dict[float, float]) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": [_deviate(far) for far in points],
        "y": [_deviate(frr) for frr in points.values()],
        "text": [f"{100 * far:g} % and {100 * frr:.1f} %" for far, frr in points.items()],
        "line": {"color": color, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": "%{text}",
    }


def _diagonal() -> Trace:
    ends = [_deviate(_LEAST), _deviate(0.55)]
    line = {"color": GREY, "width": 1, "dash": "dot"}
    look = {"showlegend": False, "hoverinfo": "skip", "line": line}
    return {"type": "scatter", "mode": "lines", "name": "equal", "x": ends, "y": ends} | look


def _deviate(rate: float) -> float:
    """The position of a rate on a normal deviate axis."""
    return NormalDist().inv_cdf(min(max(rate, _LEAST), 0.999))
