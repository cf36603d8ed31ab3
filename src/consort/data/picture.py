"""A picture of who holds what, without any package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

_CELL, _LEFT, _TOP = 24, 110, 26


def bubbles(counts: Mapping[str, Mapping[int, int]]) -> str:
    """Draws one circle per client and class, whose area is the number of examples.

    Args:
        counts: By client, the number of examples of each class.

    Returns:
        The picture as SVG.
    """
    classes = sorted({label for held in counts.values() for label in held})
    most = max((number for held in counts.values() for number in held.values()), default=1)
    width, height = _LEFT + _CELL * len(classes) + 8, _TOP + _CELL * len(counts) + 8
    shapes = [
        _text(_LEFT + _CELL * (place + 0.5), _TOP - 10, str(label), "middle")
        for place, label in enumerate(classes)
    ]
    for row, (client, held) in enumerate(counts.items()):
        middle = _TOP + _CELL * (row + 0.5)
        shapes.append(_text(_LEFT - 8, middle + 4, client, "end"))
        for place, label in enumerate(classes):
            if number := held.get(label, 0):
                radius = 0.45 * _CELL * math.sqrt(number / most)
                shapes.append(
                    f'<circle cx="{_LEFT + _CELL * (place + 0.5):g}" cy="{middle:g}" '
                    f'r="{radius:.2f}"><title>{escape(client)}, class {label}: {number}'
                    "</title></circle>"
                )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#3f51b5">{"".join(shapes)}</svg>'
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="currentColor">'
        f"{escape(text)}</text>"
    )
