"""Formats numbers and names for a page."""

from __future__ import annotations

import math
import re

from consort.report.html import Cell
from consort.results.summary import Summary, format_summary

UNKNOWN = "–"  # noqa: RUF001
DIGITS = 3


def score(value: float, best: bool = False) -> Cell:
    """A metric with three decimals."""
    return Cell(UNKNOWN if math.isnan(value) else f"{value:.{DIGITS}f}", value, best)


def summary(values: Summary, best: bool = False) -> Cell:
    """A metric over seeds, with three decimals."""
    text = UNKNOWN if math.isnan(values.mean) else format_summary(values, DIGITS)
    return Cell(text, values.mean, best)


def amount(value: float) -> Cell:
    """Seconds or MiB with about three significant digits."""
    return Cell(amount_text(value), value)


def amount_text(value: float) -> str:
    """A number of any size with about three significant digits."""
    if math.isnan(value):
        return UNKNOWN
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, min(digits, 6))}f}"


def count(number: int) -> Cell:
    """An integer with thousands separators."""
    return Cell(f"{number:,}", number)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key that puts `client-2` before `client-10`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


_TERMS = {name: name.upper() for name in ("auc", "det", "eer", "far", "frr", "tar")}
_TERMS |= {"wd": "writer-dependent", "1pct": "1 %"}


def words(name: str) -> str:
    """A name from the code in words, such as `balanced_accuracy`."""
    return " ".join(_TERMS.get(word, word) for word in name.split("_"))
