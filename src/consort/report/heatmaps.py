"""Heat maps of numbers that an algorithm recorded for every client in one run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from consort.report.assignment import Assignment
from consort.report.drawing import (
    MANY_CLIENTS,
    Style,
    Trace,
    band,
    box,
    colour,
    figure,
    line,
    matrix,
    over_rounds,
    quartiles,
    whole_numbers,
)
from consort.report.html import Figure, label
from consort.report.numbers import natural
from consort.results.measurements import Notes
from consort.results.result import Point

Rounds: TypeAlias = Mapping[int, Mapping[str, float]]

_MANY_ROUNDS = 100
_MANY_DIGITS = 12
_MANY_NUMBERS = 6
"""With more columns, there is no room for a digit, or for a number, in every cell."""


def choices(assignment: Assignment) -> Figure:
    """The model of every client over the rounds; for many clients, counts by model."""
    clients, models = assignment.clients, list(assignment.models)
    rounds = thinned(assignment.rounds)
    if len(clients) > MANY_CLIENTS:
        return _shares(assignment, rounds)
    chosen = [[assignment.rounds[r].get(client) for r in rounds] for client in clients]
    trace = cells(rounds, clients) | {
        "z": [[None if model is None else models.index(model) for model in row] for row in chosen],
        "text": [[label(model or "") for model in row] for row in chosen],
        "zmin": -0.5,
        "zmax": len(models) - 0.5,
        "colorscale": _steps(len(models)),
        "colorbar": _bar(
            tickvals=list(range(len(models))), ticktext=[f"model {label(m)}" for m in models]
        ),
        "hovertemplate": "%{y}, round %{x}: model %{text}<extra></extra>",
    }
    if len(rounds) <= _MANY_DIGITS:
        trace["texttemplate"] = "%{text}"
    return _over_rounds(trace)


def _steps(number: int) -> list[tuple[float, str]]:
    edges = [(place / number, (place + 1) / number) for place in range(number)]
    return [(edge, colour(place)) for place, pair in enumerate(edges) for edge in pair]


def _shares(assignment: Assignment, rounds: Sequence[int]) -> Figure:
    counts = {r: Counter(assignment.rounds[r].values()) for r in rounds}
    traces: list[Trace] = [
        {
            "type": "bar",
            "name": f"model {label(model)}",
            "x": list(rounds),
            "y": [counts[r][model] for r in rounds],
            "marker": {"color": colour(place)},
            "hovertemplate": "round %{x}: %{y:,} clients",
        }
        for place, model in enumerate(assignment.models)
    ]
    return over_rounds(traces, "clients", barmode="stack", bargap=0.1)


def client_map(
    noted: Rounds, clients: Sequence[str], what: str, most: float | None = None
) -> Figure:
    """A number of every client over the rounds; for many clients, its distribution.

    Args:
        noted: The number by round and client.
        clients: The clients, from top to bottom.
        what: The name of the number.
        most: The upper end of the colour scale; the largest number if not given.
    """
    rounds = thinned(noted)
    if len(clients) > MANY_CLIENTS:
        return _spread(noted, rounds, what)
    values = [[noted[r].get(client, math.nan) for r in rounds] for client in clients]
    hover = f"%{{y}}, round %{{x}}: {label(what)}"
    return _over_rounds(cells(rounds, clients) | numbers_of(values, hover, most))


def _spread(noted: Rounds, rounds: Sequence[int], what: str) -> Figure:
    five = {r: quartiles(list(noted[r].values())) for r in rounds}
    middle = [Point(r, five[r][2], five[r][1], five[r][3]) for r in rounds]
    highest, lowest = ([Point(r, five[r][k], math.nan, math.nan) for r in rounds] for k in (4, 0))
    traces = [
        *band(middle, Style("median client", colour(0))),
        line(highest, Style("highest client", colour(0), "dot"), ".4~g"),
        line(middle, Style("median client", colour(0)), ".4~g"),
        line(lowest, Style("lowest client", colour(0), "dash"), ".4~g"),
    ]
    return over_rounds(traces, what)


def part_map(noted: Notes, round_: int, clients: Sequence[str], what: str, x: str = "") -> Figure:
    """A number of every client and part in one round; for many clients, its distribution.

    Args:
        noted: The number by part, round and client.
        round_: The round.
        clients: The clients, from top to bottom.
        what: The name of the number.
        x: The title of the x axis.
    """
    parts = sorted((part for part in noted if round_ in noted[part]), key=natural)
    if len(clients) > MANY_CLIENTS:
        boxes = box([list(noted[part][round_].values()) for part in parts])
        look = {"x": list(map(label, parts)), "marker": {"color": colour(0)}}
        return figure([boxes | look], x, what, xaxis={"type": "category"}, showlegend=False)
    values = [[noted[part][round_].get(c, math.nan) for part in parts] for c in clients]
    columns = list(map(label, parts))
    trace = cells(columns, clients) | numbers_of(values, f"%{{y}}, %{{x}}: {label(what)}")
    if len(parts) <= _MANY_NUMBERS:
        trace |= {"texttemplate": "%{z:.2~f}", "textfont": {"weight": 600}}
    return matrix(trace, x, len(clients))


def thinned(rounds: Iterable[int], most: int = _MANY_ROUNDS) -> list[int]:
    """All rounds, or evenly spaced ones if there are more than `most`."""
    every = sorted(rounds)
    if len(every) <= most:
        return every
    last, steps = len(every) - 1, most - 1
    return [every[step * last // steps] for step in range(most)]


def cells(columns: Sequence[object], clients: Sequence[str]) -> Trace:
    """A heat map without its numbers, one row per client."""
    return {
        "type": "heatmap",
        "x": list(columns),
        "y": list(map(label, clients)),
        "xgap": 1 if len(columns) <= MANY_CLIENTS else 0,
        "ygap": 1,
    }


def _over_rounds(trace: Trace) -> Figure:
    return matrix(trace, "round", len(trace["y"]), type="linear", **whole_numbers(trace["x"]))


def numbers_of(values: Sequence[Sequence[float]], hover: str, most: float | None = None) -> Trace:
    """The numbers of a heat map.

    Args:
        values: The numbers, row by row.
        hover: The text that is shown with a number.
        most: The upper end of the colour scale; the largest number if not given.
    """
    known = [value for row in values for value in row if math.isfinite(value)]
    return {
        "z": values,
        "zmin": min([0.0, *known]),
        "zmax": max(known, default=1.0) if most is None else most,
        "colorbar": _bar(),
        "hovertemplate": hover + " %{z:.4~g}<extra></extra>",
    }


def _bar(**ticks: Any) -> Trace:
    return {"thickness": 10, "outlinewidth": 0, **ticks}
