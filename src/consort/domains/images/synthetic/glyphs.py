"""The strokes of digits and capital letters, as points on a small grid.

The grid has three columns and five rows; its points are named by letters,
row by row from the top:

    a b c
    d e f
    g h i
    j k l
    m n o
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.floating[Any]]

_STROKES = (
    # 0 to 9
    *("bamocb", "dbn", "dacimo", "achiomj", "agi co"),
    *("cagiom", "camoig", "acn", "hdbfhjnlh", "igacom"),
    # A to Z
    *("mbo jl", "amnlhfba gh", "camo", "amnlfba", "camo gh", "cam gh", "camoih"),
    *("am co gi", "bn ac mo", "comj", "am cgo", "amo", "mahco", "maoc"),
    *("bdjnlfb", "macig", "bamocb ko", "macig ho", "fbdhlnj", "ac bn"),
    *("amoc", "anc", "amhoc", "ao cm", "ahc hn", "acmo"),
)


def _point(letter: str) -> tuple[float, float]:
    row, column = divmod(ord(letter) - ord("a"), 3)
    return column - 1.0, row / 2 - 1.0


def _stroke(letters: str) -> Points:
    return np.array([_point(letter) for letter in letters], dtype=np.float32)


GLYPHS: tuple[tuple[Points, ...], ...] = tuple(
    tuple(_stroke(letters) for letters in strokes.split()) for strokes in _STROKES
)
"""The strokes of each character; a stroke is a polyline of (x, y) points from -1 to 1."""
