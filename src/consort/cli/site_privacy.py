"""The command `site privacy`: what a client's data have been used for, and what it cost.

Slow modules are imported inside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from consort.errors import UsageError


def privacy(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the client's credentials.")
    ],
) -> None:
    """Client: show what its data have been used for, in all runs, and the epsilon spent."""
    from rich.console import Console

    from consort.deployment.policy import Policy
    from consort.deployment.privacy_ledger import FILE, PrivacyLedger

    limit = Policy.read(folder).privacy
    path = Path(limit.ledger) if limit and limit.ledger else folder / FILE
    if not path.is_file():
        raise UsageError(f"{path} does not exist: no run has used the data of this client yet")
    Console().print(ledger_table(PrivacyLedger(path).read()))


def ledger_table(entries: dict[str, dict[str, Any]]) -> Any:
    """A table with one row per data set, and one for each of its runs.

    Args:
        entries: The entries of a ledger.

    Returns:
        The table, for printing.
    """
    from rich.markup import escape
    from rich.table import Table

    from consort.deployment.privacy_ledger import DELTA, epsilon_of, uses_of
    from consort.federation.site import Use

    title, caption = "Uses of training data", "ε: of one training example, over all answers"
    table = Table("data, runs", "began", "δ", "ε spent", "limit", title=title, caption=caption)
    for data, entry in entries.items():
        limit, delta = entry["limit"] or ("", DELTA)
        total = epsilon_of(uses_of(entries, data), delta)
        shown = f"{total:.2f}"
        if not all(run["noisy"] for run in entry["runs"].values()):
            shown += ", and answers without noise"
        table.add_row(escape(data), "", f"{delta:g}", shown, str(limit))
        for session, run in entry["runs"].items():
            own = f"{epsilon_of([Use(*use) for use in run['uses']], delta):.2f}"
            name = escape(f"  {run['algorithm']} {session[:8]}")
            table.add_row(name, run["began"], "", own if run["noisy"] else "no noise", "")
        table.add_section()
    return table
