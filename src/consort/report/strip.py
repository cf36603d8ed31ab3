"""All clients side by side under every algorithm, and who comes off worst."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from consort.report.drawing import Trace, box, faint, figure
from consort.report.html import Figure, label
from consort.report.numbers import natural, words
from consort.report.study import Study
from consort.results.result import Result

_MANY_DOTS = 200
_WIDTH = 0.6


def client_strip(study: Study, task: str) -> Figure:
    """One column per algorithm with a dot per client; of many clients a box. The worst is named."""
    higher_is_better = study.tasks[task]["higher_is_better"]
    traces: list[Trace] = []
    for place, (algorithm, runs) in enumerate(study.groups.items()):
        values = client_means(runs, task)
        traces += _column(place, algorithm, values, study.colours[algorithm])
        traces += _worst(place, values, higher_is_better, study.colours[algorithm])
    names = {"tickvals": list(range(len(study.groups))), "ticktext": list(map(label, study.groups))}
    ground = {"showgrid": False, "zeroline": False, "range": [-0.5, len(study.groups) - 0.5]}
    title = f"{words(study.tasks[task]['metric'])} in the last round"
    return figure(traces, "", title, 380, xaxis=names | ground, showlegend=False)


def strip_meaning(study: Study) -> str:
    """How to read the picture."""
    over_seeds = any(len(runs) > 1 for runs in study.groups.values())
    values = "the mean over seeds of a client" if over_seeds else "a client"
    if len(study.first.clients) > _MANY_DOTS:
        return f"From the lowest to the highest value of {values}; the ring marks the worst client."
    return f"A dot is {values}, at the same place in all columns; the ring marks the worst client."


def client_means(runs: Sequence[Result], task: str) -> dict[str, float]:
    """Every client's test value of the reported model in the last round, the mean over seeds."""
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
