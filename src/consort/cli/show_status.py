"""Prints the status of a federation."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

_SHOWN_EVENTS = 10


def show_status(table: dict[str, Any]) -> None:
    """Prints a line about the run, a table of the clients, and the latest events.

    Args:
        table: What `consort.deployment.status.current_status` returned.
    """
    console = Console()
    round_ = f", round {table['round']} of {table['rounds']}" if "round" in table else ""
    console.print(f"{table['algorithm']}: {table['phase']}{round_}", highlight=False)
    rows = Table("client", "connected", "state", "for")
    for name, client in table["clients"].items():
        mark = "[green]yes" if client["connected"] else "[red]no"
        rows.add_row(name, mark, escape(client["state"]), _duration(client["seconds"]))
    console.print(rows)
    for when, text in table["events"][-_SHOWN_EVENTS:]:
        stamp = datetime.fromtimestamp(when).isoformat(" ", "seconds")
        console.print(f"{stamp}  {escape(text)}", soft_wrap=True, highlight=False)


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
