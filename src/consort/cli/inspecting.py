"""The commands that inspect: `report`, `inspect`, `audit`, `list`.

Slow modules are imported inside them.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from consort.cli.options import Changes, Data, Json, Quiet, RecipeName, Scale, Seed
from consort.cli.running import default_folder, named_recipe
from consort.errors import UsageError


class Listing(StrEnum):
    """The kinds of things that `consort list` can list."""

    algorithms = "algorithms"
    models = "models"
    datasets = "datasets"
    tasks = "tasks"
    recipes = "recipes"
    metrics = "metrics"


class PictureKind(StrEnum):
    """The formats in which plots are written."""

    svg = "svg"
    pdf = "pdf"
    png = "png"


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write.", metavar="FILE")
    ] = None,
    pictures: Annotated[
        Path | None,
        typer.Option(help="Also write every plot as a file into this folder.", metavar="DIR"),
    ] = None,
    picture_format: Annotated[
        PictureKind, typer.Option(help="The format of these files.")
    ] = PictureKind.svg,
) -> None:
    """Write a report on one or several runs as one HTML page."""
    from consort.report.page import write_report
    from consort.report.pictures import pictures_in, write_pictures
    from consort.results.mixing import unlike_settings
    from consort.results.result import NoResults, Result
    from consort.run.folder import runs_below

    results, without = [], []
    for run in sorted({run.resolve() for folder in folders for run in runs_below(folder)}):
        try:
            results.append(Result.load(run))
        except NoResults as error:
            without.append(error)
    if not results:
        raise without[0]
    for reason in without:
        typer.echo(f"skipped: {reason}", err=True)
    for text in unlike_settings(results):
        typer.echo(f"warning: these runs do not belong together: {text}", err=True)
    path = out or folders[0] / "report.html"
    write_report(results, path)
    typer.echo(str(path))
    if pictures:
        drawn = pictures_in(path.read_text("utf-8"))
        write_pictures(drawn, pictures, picture_format.value)
        typer.echo(f"{pictures}: {len(drawn)} pictures")


def inspect(
    recipe: RecipeName,
    changes: Changes = [],  # noqa: B006
    seed: Seed = None,
    scale: Scale = None,
    data: Data = None,
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write.", metavar="FILE")
    ] = None,
    pictures: Annotated[
        bool,
        typer.Option("--pictures", help="Also compare the clients' images; loads all of them."),
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show the clients of a recipe before training.

    Writes a page on the data, model and tasks of every client.
    """
    from consort.cli.show import Screen
    from consort.experiment.assembly import assemble
    from consort.report import heterogeneity
    from consort.report.inspect import write_inspection

    path, loaded = named_recipe(recipe, scale, changes)
    number = loaded.seeds[0] if seed is None else seed
    assembly = assemble(loaded, number, data)
    description = assembly.description
    page = write_inspection(
        description,
        out or default_folder(path, scale) / "inspect.html",
        heterogeneity.pictures(assembly.federation) if pictures else None,
    )
    Screen(quiet, json).federation(description, page)


def audit(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file to write, for a single run.", metavar="FILE")
    ] = None,
    lpips: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Also score images by LPIPS; needs the weights of torchvision's AlexNet and the "
            "file alex.pth of the package lpips.",
            metavar="FILE FILE",
        ),
    ] = None,
) -> None:
    """Attack the messages that were sent in a run. Writes a page on what they leak."""
    from consort.attacks.audit import audit as attack
    from consort.cli.show_audit import show_audits
    from consort.metrics.lpips import Lpips
    from consort.report.audit import write_audit
    from consort.results.result import Result

    if out and len(folders) > 1:
        raise UsageError(
            "--out names one file, but there are several runs: omit it, each run gets its own page"
        )
    perceptual = Lpips.load(*lpips) if lpips else None
    results = [Result.load(folder) for folder in folders]
    audits = []
    for folder, result in zip(folders, results, strict=True):
        audits.append(attack(folder, perceptual=perceptual))
        typer.echo(str(write_audit(audits[-1], result, out or folder / "audit.html")))
    if len(folders) > 1:
        show_audits(audits)


def list_(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List the available algorithms, models, tasks and so on."""
    from consort.cli.listing import describe

    described = describe(what.value)
    width = max(map(len, described), default=0)
    for name, text in described.items():
        typer.echo(f"{name:<{width}}  {text}".rstrip())
