"""The command `clean`: frees what finished runs need no more."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_GIVEN_UP = (
    "these runs are to be neither extended nor exported nor audited, and their reports are written"
)


def clean(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete, and do not only list.")] = False,
) -> None:
    """Delete checkpoints and client states of finished runs; results, reports and tables stay.

    Such a run can no longer be extended, exported or audited, and a report that is written later
    has no pictures of its predictions. Without --yes, nothing is deleted. Runs that are not
    finished keep everything.
    """
    from consort.run.cleaning import clean as delete
    from consort.run.cleaning import leftover
    from consort.run.folder import runs_below

    runs = sorted({run for folder in folders for run in runs_below(folder)})
    found = [leftover(run) for run in runs]
    freed = 0
    for one in found:
        if one.unfinished:
            typer.echo(f"{one.folder}: not finished, kept")
        elif one.size:
            typer.echo(f"{one.folder}: {one.size / 2**20:.1f} MiB")
            freed += one.size
            if yes:
                delete(one.folder)
    done = "deleted" if yes else f"can be deleted: add --yes, if {_GIVEN_UP}"
    typer.echo(f"{freed / 2**20:.1f} MiB {done}")
