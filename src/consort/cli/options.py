"""Arguments and options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from consort.engines.choice import EngineName


class LogStyle(StrEnum):
    """What server and client print on standard error: sentences, or events for machines."""

    text = "text"
    json = "json"


RecipeName = Annotated[
    str, typer.Argument(help="A recipe file, or the name of a recipe that comes with Consort.")
]
Changes = Annotated[
    list[str],
    typer.Option("--set", help="Override a key of the recipe: run.rounds=5", metavar="KEY=VALUE"),
]
Algorithm = Annotated[
    str | None, typer.Option(help="One of the recipe's algorithms; default: the first one.")
]
Seed = Annotated[int | None, typer.Option(help="Random seed; default: the recipe's first seed.")]
Scale = Annotated[
    str | None, typer.Option(help="One of the recipe's scales, such as desk or paper.")
]
Workers = Annotated[
    int, typer.Option(min=1, help="Number of processes that train clients in parallel.")
]
Engine = Annotated[
    EngineName | None, typer.Option(help="Where clients are trained; does not change the results.")
]
Address = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster: auto, host:port or ray://host:port.", metavar="ADDRESS"
    ),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", metavar="DIR")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with real data sets.", envvar="CONSORT_DATA", metavar="DIR"),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no progress bars and no tables.")]
LogFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also add events to this file, as JSON lines.")
]
Trackers = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="NAMES",
        help="Also log to trackers, without network: tensorboard,mlflow,wandb,trackio",
    ),
]
Log = Annotated[
    LogStyle, typer.Option(help="What is printed on standard error: text, or events as JSON lines.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON on standard output.")]
