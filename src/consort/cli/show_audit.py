"""Several audits side by side, with what papers print beside ours."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from consort.attacks.audit import Audit
from consort.attacks.figures import figures, published


def show_audits(audits: Sequence[Audit]) -> None:
    """A column for every run, and another where its recipe has published numbers."""
    columns = []
    titles = distinct([audit.folder for audit in audits])
    for audit, title in zip(audits, titles, strict=True):
        columns.append((title, figures(audit)))
        if theirs := published(audit):
            columns.append(("published", theirs))
    table = Table("", *(title for title, _ in columns))
    for name in dict.fromkeys(name for _, values in columns for name in values):
        table.add_row(name, *(_shown(values.get(name)) for _, values in columns))
    Console().print(table)


def distinct(folders: Sequence[Path]) -> list[str]:
    """Paths without the parts at either end that all of them share."""
    parts = [folder.resolve().parts for folder in folders]
    before, after = (_shared(ends) for ends in (parts, [part[::-1] for part in parts]))
    return [str(Path(*part[before : len(part) - after])) for part in parts]


def _shared(paths: Sequence[Sequence[str]]) -> int:
    """How many parts all paths begin with; at least one is left of each."""
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return min(len(list(same)), min(map(len, paths)) - 1)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
