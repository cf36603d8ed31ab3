"""The commands. Everything slow is imported inside them, so that help is immediate."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consort.cli import federation
from consort.cli.demo import demo
from consort.cli.options import (
    Address,
    Algorithm,
    Changes,
    Data,
    Engine,
    Json,
    Out,
    Quiet,
    RecipeName,
    Scale,
    Seed,
    Workers,
)
from consort.cli.use import enroll, export, verify
from consort.engines.choice import EngineChoice
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.cli.show import Screen
    from consort.recipe import Recipe

app = typer.Typer(
    help="Federated learning for clients that are unlike: in data, in models, in tasks.",
    epilog="Add --debug to any command to see where an error comes from.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


class Listing(StrEnum):
    """What can be listed."""

    algorithms = "algorithms"
    models = "models"
    datasets = "datasets"
    tasks = "tasks"
    recipes = "recipes"
    metrics = "metrics"


@app.callback(invoke_without_command=True)
def consort(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    """Federated learning for clients that are unlike: in data, in models, in tasks."""
    if version:
        from consort import __version__

        typer.echo(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(demo)


@app.command()
def run(
    recipe: RecipeName,
    changes: Changes = [],  # noqa: B006
    algorithm: Algorithm = None,
    seed: Seed = None,
    scale: Scale = None,
    workers: Workers = 1,
    engine: Engine = None,
    address: Address = None,
    data: Data = None,
    out: Out = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run one algorithm on one federation, or go on with such a run."""
    from consort.assembly import prepare_run
    from consort.cli.show import Screen

    choice = EngineChoice(engine, workers, address)
    path, loaded = _recipe(recipe, scale, changes)
    name = algorithm or next(iter(loaded.algorithms))
    number = loaded.seeds[0] if seed is None else seed
    folder = (out or _default_folder(path, scale)) / name / f"seed-{number}"
    with Screen(quiet, json) as screen:
        watcher = screen.watch(name, number, loaded.run.rounds)
        prepare_run(loaded, name, number, folder, data, choice, watcher).go()
    _finish([folder], screen)


@app.command()
def compare(
    recipe: RecipeName,
    changes: Changes = [],  # noqa: B006
    algorithms: Annotated[
        str | None, typer.Option(help="Some of the recipe's algorithms: a,b,c", metavar="NAMES")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds 0 to N-1 in place of the recipe's.")
    ] = None,
    scale: Scale = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with 1 unless every claim of the recipe holds.")
    ] = False,
    workers: Workers = 1,
    engine: Engine = None,
    address: Address = None,
    data: Data = None,
    out: Out = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run all algorithms of a recipe over its seeds: the table of a paper, its claims judged."""
    from consort.assembly import prepare_run, refuse_impossible
    from consort.cli.show import Screen
    from consort.comparison import judge

    choice = EngineChoice(engine, workers, address)
    path, loaded = _recipe(recipe, scale, changes)
    names = algorithms.split(",") if algorithms else list(loaded.algorithms)
    numbers = list(range(seeds)) if seeds else loaded.seeds
    refuse_impossible(loaded, names, numbers[0], data)
    root = out or _default_folder(path, scale)
    folders = []
    with Screen(quiet, json) as screen:
        for number in numbers:
            for name in names:
                folder = root / name / f"seed-{number}"
                watcher = screen.watch(name, number, loaded.run.rounds)
                prepare_run(loaded, name, number, folder, data, choice, watcher).go()
                folders.append(folder)
    verdicts = judge(loaded, folders)
    _finish(folders, screen, loaded, root, verdicts)
    if check and any(verdict.outcome != "holds" for verdict in verdicts):
        raise typer.Exit(1)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
    workers: Annotated[int | None, typer.Option(min=1, help="As before if not given.")] = None,
    engine: Engine = None,
    address: Address = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Go on where a run stopped, killed or not; the numbers are those of an unbroken run."""
    from consort.assembly import read_description, resume_run
    from consort.cli.show import Screen

    written = read_description(folder)
    with Screen(quiet, json) as screen:
        watcher = screen.watch(written["algorithm"], written["seed"], written["rounds"])
        resume_run(folder, workers, watcher, engine, address).go()
    _finish([folder], screen)


@app.command()
def server(
    recipe: RecipeName,
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients reach it.")],
    credentials: Annotated[Path, typer.Option(metavar="DIR", help="From consort site init.")],
    out: Annotated[Path, typer.Option(help="Folder for the results.", metavar="DIR")],
    changes: Changes = [],  # noqa: B006
    algorithm: Algorithm = None,
    seed: Seed = None,
    scale: Scale = None,
    deadline: Annotated[
        float, typer.Option(min=1, help="Seconds that a client has for an answer.")
    ] = 3600,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run one algorithm among institutions: wait for the clients, or go on with such a run."""
    federation.need_flower()
    federation.check_address(listen)
    from consort.cli.show import Screen
    from consort.deployment.credentials import ServerCredentials
    from consort.deployment.server import Server

    _, loaded = _recipe(recipe, scale, changes)
    name = algorithm or next(iter(loaded.algorithms))
    number = loaded.seeds[0] if seed is None else seed
    opened = ServerCredentials.open(credentials)
    with Screen(quiet, json) as screen:
        watcher = screen.watch(name, number, loaded.run.rounds)
        Server(loaded, name, number, out, opened, deadline, screen.say).go(listen, watcher)
    _finish([out], screen)


app.add_typer(federation.site, name="site")
app.command()(federation.client)
app.command()(federation.status)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    out: Annotated[Path | None, typer.Option(help="The HTML file.", metavar="FILE")] = None,
) -> None:
    """Write one self-contained HTML page about one run or several."""
    from consort.comparison import runs_below
    from consort.report.page import write_report
    from consort.results import NoResults, Result

    results, without = [], []
    for run in sorted({run.resolve() for folder in folders for run in runs_below(folder)}):
        try:
            results.append(Result.load(run))
        except NoResults as error:
            without.append(error)
    if not results:
        raise without[0]
    for reason in without:
        typer.echo(f"left out: {reason}", err=True)
    path = out or folders[0] / "report.html"
    write_report(results, path)
    typer.echo(str(path))


@app.command()
def inspect(
    recipe: RecipeName,
    changes: Changes = [],  # noqa: B006
    seed: Seed = None,
    scale: Scale = None,
    data: Data = None,
    out: Annotated[Path | None, typer.Option(help="The HTML file.", metavar="FILE")] = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="How unlike clients' pictures are; reads them all.")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show the federation before training: who holds what, with which model, for which tasks."""
    from consort.assembly import assemble
    from consort.cli.show import Screen
    from consort.report import unlike
    from consort.report.inspect import write_inspection

    path, loaded = _recipe(recipe, scale, changes)
    number = loaded.seeds[0] if seed is None else seed
    assembly = assemble(loaded, number, data)
    description = assembly.description
    page = write_inspection(
        description,
        out or _default_folder(path, scale) / "inspect.html",
        unlike.pictures(assembly.federation) if pictures else None,
    )
    Screen(quiet, json).federation(description, page)


@app.command()
def audit(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Folders of runs.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file, of a single run.", metavar="FILE")
    ] = None,
    lpips: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Weights of torchvision's alexnet and alex.pth of the package lpips: "
            "score pictures by LPIPS too.",
            metavar="FILE FILE",
        ),
    ] = None,
) -> None:
    """Attack what runs really sent, and write a page about what leaks; several side by side."""
    from consort.cli.show_audit import show_audits
    from consort.metrics.lpips import Lpips
    from consort.privacy.audit import audit as attack
    from consort.report.audit import write_audit
    from consort.results import Result

    if out and len(folders) > 1:
        raise UsageError("--out names one file, but there are several runs: each gets its own")
    perceptual = Lpips.load(*lpips) if lpips else None
    results = [Result.load(folder) for folder in folders]
    audits = []
    for folder, result in zip(folders, results, strict=True):
        audits.append(attack(folder, perceptual=perceptual))
        typer.echo(str(write_audit(audits[-1], result, out or folder / "audit.html")))
    if len(folders) > 1:
        show_audits(audits)


@app.command(name="list")
def list_(what: Annotated[Listing, typer.Argument(help="What to list.")]) -> None:
    """List what there is: algorithms, models, data sets, tasks, recipes, metrics."""
    from consort.cli.listing import describe

    described = describe(what.value)
    width = max(map(len, described), default=0)
    for name, text in described.items():
        typer.echo(f"{name:<{width}}  {text}".rstrip())


for _command in (export, enroll, verify):
    app.command()(_command)


def _recipe(name: str, scale: str | None, changes: list[str]) -> tuple[Path, Recipe]:
    from consort.recipe import load_recipe
    from consort.shipped import find_recipe

    path = find_recipe(name)
    return path, load_recipe(path, scale, changes)


def _default_folder(recipe: Path, scale: str | None) -> Path:
    return Path("runs") / (f"{recipe.stem}-{scale}" if scale else recipe.stem)


def _finish(
    folders: list[Path],
    screen: Screen,
    recipe: Recipe | None = None,
    root: Path | None = None,
    verdicts: list[Verdict] | None = None,
) -> None:
    """Prints the table and writes the report."""
    from consort.report.page import write_report
    from consort.results import Result

    results = [Result.load(folder) for folder in folders]
    published = recipe.published if recipe else []
    page = write_report(results, (root or folders[0]) / "report.html", verdicts or [], published)
    screen.results(results, verdicts or [], published, page)


if TYPE_CHECKING:
    from consort.claims import Verdict

__all__ = ["UsageError", "app"]
