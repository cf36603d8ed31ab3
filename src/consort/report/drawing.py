"""The building blocks of all plots. A plot is a plain dictionary, as Plotly's script reads it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, TypeAlias

from consort.report.html import Figure, label
from consort.results.result import Point

Trace: TypeAlias = dict[str, Any]

MANY_CLIENTS = 60
"""With more clients than this, plots show distributions instead of single clients."""

GREY = "#8a94a6"
LESS, EVEN, MORE = "#d9485f", "#e6eaef", "#2f9e77"
"""The colours of heat maps with values below, at and above a reference."""
DASHES = ("solid", "dash", "dot", "dashdot")

_PALETTE = (
    "#3f74d9",
    "#e07b39",
    "#2f9e77",
    "#b455c8",
    "#cf9a12",
    "#d9485f",
    "#1f9fb8",
    "#8c6d4f",
    "#7d7fe0",
    "#7a8694",
)


def colour(place: int) -> str:
    """A colour that differs from its neighbours on light and on dark backgrounds."""
    return _PALETTE[place % len(_PALETTE)]


def faint(color: str) -> str:
    """A transparent version of a colour, for areas."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"


def figure(data: list[Trace], x: str, y: str, height: int = 320, **layout: Any) -> Figure:
    """A figure with axis titles.

    Args:
        data: The traces.
        x: The title of the x axis.
        y: The title of the y axis.
        height: The height in pixels.
        layout: More keys of Plotly's layout; `xaxis` and `yaxis` add to the titles.
    """
    axes = {
        name: {"title": {"text": label(title)}} | layout.pop(name, {})
        for name, title in (("xaxis", x), ("yaxis", y))
    }
    return {"data": data, "layout": {"height": height, **axes, **layout}}


def over_rounds(data: list[Trace], y: str, **layout: Any) -> Figure:
    """A figure with rounds on the x axis."""
    rounds = [x for trace in data for x in trace["x"]]
    return figure(data, "round", y, xaxis=whole_numbers(rounds), **layout)


def whole_numbers(rounds: Sequence[int]) -> Trace:
    """Axis settings without ticks between rounds."""
    return {"dtick": 1} if max(rounds, default=0) <= 10 else {}


def quartiles(values: Sequence[float]) -> list[float]:
    """Minimum, lower quartile, median, upper quartile and maximum of the finite values."""
    numbers = sorted(filter(math.isfinite, values))
    if len(numbers) < 2:
        return (numbers or [math.nan]) * 5
    return [numbers[0], *quantiles(numbers, n=4, method="inclusive"), numbers[-1]]


def box(values: Sequence[Sequence[float]]) -> Trace:
    """Box plots from minimum to maximum, without the values themselves."""
    low, q1, median, q3, high = zip(*map(quartiles, values), strict=True)
    bounds = {"lowerfence": low, "q1": q1, "median": median, "q3": q3, "upperfence": high}
    return {"type": "box"} | {name: list(numbers) for name, numbers in bounds.items()}


def matrix(trace: Trace, x: str, rows: int, **xaxis: Any) -> Figure:
    """A heat map with names on both axes, the first row on top.

    Args:
        trace: The heat map.
        x: The title of the x axis.
        rows: The number of rows.
        xaxis: More settings of the x axis.
    """
    names = {"type": "category", "showgrid": False}
    downwards = {"autorange": "reversed"} | names
    return figure([trace], x, "", height_of(rows), xaxis=names | xaxis, yaxis=downwards)


def height_of(rows: int) -> int:
    """The height in pixels of a plot with a number of rows."""
    return 110 + max(16 * rows, 120)


@dataclass(frozen=True)
class Style:
    """The style of a curve."""

    name: str
    color: str
    dash: str = "solid"
    shown: bool = True
    """Whether it is visible before it is selected in the legend."""

    @property
    def trace(self) -> Trace:
        """The settings that all parts of a curve share."""
        return {
            "type": "scatter",
            "name": label(self.name),
            "legendgroup": label(self.name),
            "visible": True if self.shown else "legendonly",
        }


def line(points: Sequence[Point], style: Style, number: str = ".3f") -> Trace:
    """The line through the means.

    Args:
        points: The points of the curve.
        style: Its style.
        number: The format of the values.
    """
    return style.trace | {
        "mode": "lines+markers" if len(points) <= 25 else "lines",
        "x": [p.round for p in points],
        "y": [p.mean for p in points],
        "line": {"color": style.color, "dash": style.dash, "width": 2},
        "marker": {"size": 5},
        "hovertemplate": f"round %{{x}}: %{{y:{number}}}",
    }


def band(points: Sequence[Point], style: Style) -> list[Trace]:
    """The area between the lower and upper bounds."""
    edge = style.trace | {
        "mode": "lines",
        "x": [p.round for p in points],
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    fill = {"fill": "tonexty", "fillcolor": faint(style.color)}
    return [edge | {"y": [p.low for p in points]}, edge | fill | {"y": [p.high for p in points]}]
