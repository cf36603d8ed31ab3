"""How numbers are written in a page."""

from __future__ import annotations

import math
import re

from consort.report.html import Cell
from consort.results.statistics import Summary, format_summary

UNKNOWN = "–"  # noqa: RUF001
DIGITS = 3


def score(value: float, best: bool = False) -> Cell:
    """A metric, in three decimals."""
    return Cell(UNKNOWN if math.isnan(value) else f"{value:.{DIGITS}f}", value, best)


def summary(values: Summary, best: bool = False) -> Cell:
    """A metric over seeds, in three decimals."""
    text = UNKNOWN if math.isnan(values.mean) else format_summary(values, DIGITS)
    return Cell(text, values.mean, best)


def amount(value: float) -> Cell:
    """Seconds or MiB: about three digits, whatever the size."""
    return Cell(amount_text(value), value)


def amount_text(value: float) -> str:
    """About three digits of a number that may have any size."""
    if math.isnan(value):
        return UNKNOWN
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, min(digits, 6))}f}"


def count(number: int) -> Cell:
    """A whole number, with its thousands set apart."""
    return Cell(f"{number:,}", number)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts `client-2` before `client-10`."""
    parts = re.findall(r"\d+|\D+", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


_TERMS = {name: name.upper() for name in ("auc", "det", "eer", "far", "frr", "tar")}
_TERMS |= {"wd": "writer-dependent", "1pct": "1 %"}


def words(name: str) -> str:
    """A name from the code, in words."""
    return " ".join(_TERMS.get(word, word) for word in name.split("_"))
