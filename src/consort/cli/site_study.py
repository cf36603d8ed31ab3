"""The commands of `site` with which the owner of a client decides about studies and reads its log.

Slow modules are imported inside the commands.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from consort.cli.site import need_flower, site

ClientFolder = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder of the client's credentials.")
]
StudyHash = Annotated[
    str, typer.Argument(metavar="STUDY", help="The first digits of the hash of the study.")
]


@site.command()
def studies(folder: ClientFolder) -> None:
    """Client: list the studies that it was asked to take part in."""
    from consort.deployment.approval import Studies

    for entry in Studies.of(folder).all():
        typer.echo(f"{entry.state}, {_moment(entry.time)}")
        for line in entry.lines:
            typer.echo(line)


@site.command()
def approve(folder: ClientFolder, study: StudyHash) -> None:
    """Client: take part in a study."""
    from consort.deployment.approval import Studies

    for line in Studies.of(folder).decide(study, "approved").lines:
        typer.echo(line)
    typer.echo("approved")


@site.command()
def refuse(folder: ClientFolder, study: StudyHash) -> None:
    """Client: do not take part in a study, or no longer."""
    from consort.deployment.approval import Studies

    entry = Studies.of(folder).decide(study, "refused")
    typer.echo(f"study {entry.hash[:8]} is refused")


@site.command()
def log(
    folder: ClientFolder,
    verify: Annotated[
        bool, typer.Option("--verify", help="Verify that no line was changed or removed.")
    ] = False,
) -> None:
    """Client: show what it was asked and what it answered."""
    need_flower()
    from consort.deployment.site_log import read_lines, verified

    if not verify:
        for entry in read_lines(folder):
            typer.echo(_shown(entry))
        return
    count = sum(1 for _ in verified(folder))
    typer.echo(f"{count} lines: none was changed, and none is missing")


def _shown(entry: dict[str, Any]) -> str:
    """One line for people."""
    what = [str(entry.get("event")), *(str(entry[k]) for k in ("kind", "method") if k in entry)]
    about = [f"round {entry['round']}"] if "round" in entry else []
    about += [f"study {str(entry['study'])[:8]}"] if "study" in entry else []
    for key in ("down", "up"):
        if entry.get(key):
            about.append(f"{key} " + " ".join(f"{role} {n:,}" for role, n in entry[key].items()))
    about += [f"{key} {entry[key]}" for key in ("epsilon", "reason") if key in entry]
    return ", ".join([f"{entry['number']}  {_moment(entry['time'])}  {' '.join(what)}", *about])


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")
