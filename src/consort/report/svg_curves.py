"""Learning curves as plain SVG, for places where no script runs, such as a notebook's output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from consort.report.drawing import GREY, colour
from consort.report.html import Html, tag

Curve = Sequence[tuple[float, float]]
"""Points of a round and a value."""

_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 10, 26, 30


def svg_curves(title: str, curves: Mapping[str, Curve]) -> Html:
    """A small diagram of curves over rounds, with a legend below.

    Args:
        title: The title.
        curves: The points of every curve, by name; values that are not finite are left out.
    """
    shown = {n: [p for p in curve if math.isfinite(p[1])] for n, curve in curves.items()}
    points = [point for curve in shown.values() for point in curve]
    rounds = [x for x, _ in points] or [0.0]
    values = [y for _, y in points] or [0.0]
    x_range, y_range = (min(rounds), max(rounds)), (min(values), max(values))

    def place(point: tuple[float, float]) -> str:
        x = _LEFT + _share(point[0], x_range) * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - _share(point[1], y_range) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    lines = (
        tag("polyline", points=" ".join(map(place, curve)), fill="none", stroke=colour(number),
            stroke_width=2)
        for number, curve in enumerate(shown.values())
    )  # fmt: skip
    picture = tag(
        "svg",
        _text(title, _LEFT, 15, "start"),
        *_frame(x_range, y_range),
        *lines,
        width=_WIDTH,
        height=_HEIGHT,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        aria_label=title,
    )
    return tag("div", picture, tag("br"), *_legend(shown), style="display:inline-block")


def _share(value: float, bounds: tuple[float, float]) -> float:
    low, high = bounds
    return (value - low) / (high - low) if high > low else 0.5


def _frame(x: tuple[float, float], y: tuple[float, float]) -> list[Html]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    axes = f"{_LEFT},{_TOP} {_LEFT},{bottom} {right},{bottom}"
    return [
        tag("polyline", points=axes, fill="none", stroke=GREY),
        _text(f"{y[1]:.3g}", _LEFT - 5, _TOP + 4, "end"),
        _text(f"{y[0]:.3g}", _LEFT - 5, bottom, "end"),
        _text(f"{x[0]:g}", _LEFT, bottom + 16, "start"),
        _text(f"round {x[1]:g}", right, bottom + 16, "end"),
    ]


def _text(text: str, x: float, y: float, anchor: str) -> Html:
    style = f"font:12px sans-serif;fill:{GREY};text-anchor:{anchor}"
    return tag("text", text, x=str(x), y=str(y), style=style)


def _legend(names: Mapping[str, object]) -> list[Html]:
    return [
        tag("span", name, style=f"color:{colour(number)};margin-left:12px")
        for number, name in enumerate(names)
    ]
