"""A strip plot of all clients under every algorithm, with the worst client marked."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from consort.report.drawing import Trace, box, faint, figure
from consort.report.html import Figure, label
from consort.report.numbers import natural, words
from consort.report.run_set import RunSet
from consort.results.result import Result

_MANY_DOTS = 200
_WIDTH = 0.6


def client_strip(run_set: RunSet, task: str) -> Figure:
    """One column per algorithm with a dot per client, or a box if there are many clients."""
    higher_is_better = run_set.tasks[task]["higher_is_better"]
    traces: list[Trace] = []
    for place, (algorithm, runs) in enumerate(run_set.groups.items()):
        values = client_means(runs, task)
        traces += _column(place, algorithm, values, run_set.colours[algorithm])
        traces += _worst(place, values, higher_is_better, run_set.colours[algorithm])
    names = {
        "tickvals": list(range(len(run_set.groups))),
        "ticktext": list(map(label, run_set.groups)),
    }
    ground = {"showgrid": False, "zeroline": False, "range": [-0.5, len(run_set.groups) - 0.5]}
    title = f"{words(run_set.tasks[task]['metric'])} in the last round"
    return figure(traces, "", title, 380, xaxis=names | ground, showlegend=False)


def strip_meaning(run_set: RunSet) -> str:
    """A note that explains the plot."""
    over_seeds = any(len(runs) > 1 for runs in run_set.groups.values())
    seeds = " (mean over seeds)" if over_seeds else ""
    ring = "the ring marks the worst client."
    if len(run_set.first.clients) > _MANY_DOTS:
        return f"The box shows the distribution over clients{seeds}; {ring}"
    return f"Each dot is a client{seeds}, in the same order in all columns; {ring}"


def client_means(runs: Sequence[Result], task: str) -> dict[str, float]:
    """The test value of every client's reported model in the last round, the mean over seeds."""
    values: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if task in run.tasks:
            for client, value in run.clients_at(run.last_round, task).items():
                values[client].append(value)
    return {client: fmean(values[client]) for client in sorted(values, key=natural)}


def _column(place: int, algorithm: str, values: Mapping[str, float], color: str) -> list[Trace]:
    if len(values) > _MANY_DOTS:
        look = {"x": [place], "marker": {"color": color}, "fillcolor": faint(color)}
        return [box([list(values.values())]) | look | {"name": label(algorithm), "width": _WIDTH}]
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label(algorithm),
            "x": [place + offset for offset in _offsets(len(values))],
            "y": list(values.values()),
            "text": [label(client) for client in values],
            "marker": {"color": color, "size": 6, "opacity": 0.75},
            "hovertemplate": "%{text}: %{y:.3f}",
        }
    ]


def _offsets(number: int) -> list[float]:
    return [((rank + 0.5) / number - 0.5) * _WIDTH for rank in range(number)]


def _worst(
    place: int, values: Mapping[str, float], higher_is_better: bool, color: str
) -> list[Trace]:
    known = {client: value for client, value in values.items() if math.isfinite(value)}
    if not known:
        return []
    worst = (min if higher_is_better else max)(known, key=known.__getitem__)
    rank = list(values).index(worst)
    shift = 0.0 if len(values) > _MANY_DOTS else _offsets(len(values))[rank]
    return [
        {
            "type": "scatter",
            "mode": "markers+text",
            "x": [place + shift],
            "y": [known[worst]],
            "text": [label(worst)],
            "textposition": "bottom center" if higher_is_better else "top center",
            "cliponaxis": False,
            "marker": {"symbol": "circle-open", "size": 13, "color": color, "line": {"width": 2}},
            "hoverinfo": "skip",
        }
    ]
