"""The critical-difference diagram: average ranks on a line, bars over algorithms that are alike.

Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006), Figure 1.
"""

from __future__ import annotations

import math
from typing import Any

from consort.report.html import Figure, label
from consort.results.significance import Friedman

_INK = "#1c2430"
_ROW = 24
"""Pixels from one name to the next."""
_TOP = 70
"""Pixels above the axis: the critical difference and the numbers of the ranks."""


def critical_difference_diagram(found: Friedman, title: str = "") -> Figure:
    """The diagram of Friedman's test; the best algorithm is on the left.

    Args:
        found: The test.
        title: A text above the diagram.
    """
    low, high = 1, max(2, len(found.ranks))
    half = math.ceil(len(found.ranks) / 2)
    bars = len(found.groups)
    depth = 14 * bars + 16 + _ROW * half
    shapes = [_line(low, 0, high, 0), *_ticks(low, high), *_ruler(low, found.critical_difference)]
    notes = [_text(str(rank), rank, -16) for rank in range(low, high + 1)]
    middle = low + found.critical_difference / 2
    notes.append(_text(f"CD = {found.critical_difference:.2f}", middle, -54))
    for place, group in enumerate(found.groups, start=1):
        ends = found.ranks[group[0]] - 0.04, found.ranks[group[-1]] + 0.04
        shapes.append(_line(ends[0], 14 * place, ends[1], 14 * place, 4))
    for place, (name, rank) in enumerate(found.ranks.items()):
        left = place < half
        row = place if left else len(found.ranks) - 1 - place
        level = 14 * bars + 20 + _ROW * row
        edge = low - 0.15 if left else high + 0.15
        shapes += [_line(rank, 0, rank, level), _line(rank, level, edge, level)]
        told = f"{label(name)} ({rank:.2f})"
        notes.append(_text(told, edge, level, "right" if left else "left"))
    reach = 0.15 + 0.35 * (high - low)
    return {
        "data": [{"type": "scatter", "x": [], "y": []}],
        "layout": {
            "height": depth + _TOP + 40,
            "title": {"text": label(title)},
            "shapes": shapes,
            "annotations": notes,
            "showlegend": False,
            "xaxis": {"visible": False, "range": [low - reach, high + reach], "fixedrange": True},
            "yaxis": {"visible": False, "range": [depth, -_TOP], "fixedrange": True},
            "margin": {"l": 10, "r": 10, "t": 40 if title else 10, "b": 10},
        },
    }


def _ticks(low: int, high: int) -> list[dict[str, Any]]:
    halves = [rank / 2 for rank in range(2 * low, 2 * high + 1)]
    return [_line(rank, -8 if rank.is_integer() else -4, rank, 0) for rank in halves]


def _ruler(start: float, length: float) -> list[dict[str, Any]]:
    """The critical difference, drawn to scale above the axis."""
    ends = (start, start + length)
    return [_line(start, -38, start + length, -38), *(_line(x, -42, x, -34) for x in ends)]


def _line(x0: float, y0: float, x1: float, y1: float, width: float = 1.5) -> dict[str, Any]:
    ink = {"color": _INK, "width": width}
    return {"type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "line": ink}


def _text(text: str, x: float, y: float, side: str = "center") -> dict[str, Any]:
    return {
        "text": text,
        "x": x,
        "y": y,
        "showarrow": False,
        "xanchor": side,
        "yanchor": "middle",
        "font": {"color": _INK, "size": 13},
    }
