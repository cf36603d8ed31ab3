"""Several audits side by side, with what papers print beside ours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from consort.privacy.audit import Audit
from consort.privacy.figures import figures, published


def show_audits(audits: Sequence[Audit]) -> None:
    """A column for every run, and another where its recipe has published numbers."""
    columns = []
    for audit in audits:
        columns.append((str(audit.folder), figures(audit)))
        if theirs := published(audit):
            columns.append(("published", theirs))
    table = Table("", *(title for title, _ in columns))
    for name in dict.fromkeys(name for _, values in columns for name in values):
        table.add_row(name, *(_shown(values.get(name)) for _, values in columns))
    Console().print(table)


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
