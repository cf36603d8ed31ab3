"""What all pictures share. A picture is a plain dictionary, as Plotly's script reads it."""

from __future__ import annotations

from typing import Any, TypeAlias

from consort.report.html import Figure

Trace: TypeAlias = dict[str, Any]

MANY_CLIENTS = 60
"""Beyond this, pictures show distributions in place of single clients."""

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
    """A colour that can be told from its neighbours on light and on dark ground."""
    return _PALETTE[place % len(_PALETTE)]


def faint(color: str) -> str:
    """The colour of an area under lines of a colour."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.15)"


def figure(data: list[Trace], x: str, y: str, height: int = 320, **layout: Any) -> Figure:
    """A figure with titles at its axes; an `xaxis` or `yaxis` in the layout adds to them."""
    axes = {
        name: {"title": {"text": title}} | layout.pop(name, {})
        for name, title in (("xaxis", x), ("yaxis", y))
    }
    return {"data": data, "layout": {"height": height, **axes, **layout}}


def over_rounds(data: list[Trace], y: str, **layout: Any) -> Figure:
    """A figure with rounds from left to right, which are whole numbers."""
    last = max((x for trace in data for x in trace["x"]), default=0)
    return figure(data, "round", y, xaxis={"dtick": 1} if last <= 10 else {}, **layout)
