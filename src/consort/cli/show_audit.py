"""Prints several audits side by side, next to the numbers that papers report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from consort.attacks.audit import Audit
from consort.attacks.audit_metrics import audit_metrics, published_metrics


def show_audits(audits: Sequence[Audit]) -> None:
    """Prints one column per run, and a second one where its recipe has published numbers."""
    columns = []
    titles = distinct([audit.folder for audit in audits])
    for audit, title in zip(audits, titles, strict=True):
        columns.append((title, audit_metrics(audit)))
        if theirs := published_metrics(audit):
            columns.append(("published", theirs))
    table = Table("", *(title for title, _ in columns))
    for name in dict.fromkeys(name for _, values in columns for name in values):
        table.add_row(name, *(_shown(values.get(name)) for _, values in columns))
    Console().print(table)


def distinct(folders: Sequence[Path]) -> list[str]:
    """Short titles: paths without the leading and trailing parts that all of them share."""
    parts = [folder.resolve().parts for folder in folders]
    before, after = (_shared(ends) for ends in (parts, [part[::-1] for part in parts]))
    return [str(Path(*part[before : len(part) - after])) for part in parts]


def _shared(paths: Sequence[Sequence[str]]) -> int:
    """The number of leading parts that all paths share; at least one part of each remains."""
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return min(len(list(same)), min(map(len, paths)) - 1)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
