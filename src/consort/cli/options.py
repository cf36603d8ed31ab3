"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from consort.engines.choice import EngineName

RecipeName = Annotated[str, typer.Argument(help="A recipe file, or the name of a shipped one.")]
Changes = Annotated[
    list[str], typer.Option("--set", help="Change a key of the recipe: run.rounds=5", metavar="K=V")
]
Algorithm = Annotated[
    str | None, typer.Option(help="Which of the recipe's algorithms; the first if not given.")
]
Seed = Annotated[int | None, typer.Option(help="The recipe's first seed if not given.")]
Scale = Annotated[str | None, typer.Option(help="One of the recipe's scales: desk, paper.")]
Workers = Annotated[int, typer.Option(min=1, help="Processes that train clients side by side.")]
Engine = Annotated[EngineName | None, typer.Option(help="What trains clients; decides no number.")]
Address = Annotated[
    str | None,
    typer.Option(help="A Ray cluster: auto, host:port, ray://host:port.", metavar="ADDRESS"),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", metavar="DIR")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with real data sets.", envvar="CONSORT_DATA", metavar="DIR"),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bars, no tables.")]
Json = Annotated[bool, typer.Option("--json", help="Results as JSON on standard output.")]
