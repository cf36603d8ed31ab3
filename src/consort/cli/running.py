"""The commands that train: `run`, `compare`, `resume`. Slow modules are imported inside them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from consort.cli.options import (
    Address,
    Algorithm,
    Changes,
    Data,
    Engine,
    Json,
    LogFile,
    Out,
    Quiet,
    RecipeName,
    Scale,
    Seed,
    Trackers,
    Workers,
)
from consort.cli.stopping import stops_on_sigterm
from consort.engines.choice import EngineChoice
from consort.errors import UsageError

if TYPE_CHECKING:
    from consort.cli.show import Screen
    from consort.experiment.recipe import Recipe
    from consort.results.claims import Verdict
    from consort.run.observer import Observer


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
    log: Trackers = "",
    log_file: LogFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run one algorithm of a recipe. Continues the run if it was interrupted."""
    from consort.cli.show import Screen
    from consort.cli.watching import Watching
    from consort.experiment.comparing import run_folder
    from consort.experiment.loading import located
    from consort.experiment.preparation import prepare_run

    choice = EngineChoice(engine, workers, address)
    path, loaded = named_recipe(recipe, scale, changes)
    name = algorithm or next(iter(loaded.algorithms))
    number = loaded.seeds[0] if seed is None else seed
    root = out or default_folder(path, scale)
    folder = run_folder(root, name, number)
    watching = Watching(log, log_file, root)
    with stops_on_sigterm(), Screen(quiet, json) as screen:
        observer = watching.of(screen, name, number, loaded.run.rounds, folder)
        with located(path, loaded):
            prepared = prepare_run(loaded, name, number, folder, data, choice, observer)
        prepared.go()
    finish([folder], screen)


def compare(
    recipe: RecipeName,
    changes: Changes = [],  # noqa: B006
    algorithms: Annotated[
        str | None,
        typer.Option(help="Run only these of the recipe's algorithms: a,b,c", metavar="NAMES"),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Use seeds 0 to N-1 instead of the recipe's.")
    ] = None,
    scale: Scale = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Exit with code 1 unless every claim of the recipe holds."),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Also add a row for each run to a CSV file in this folder.", metavar="DIR"
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores", help="Also write the scores of verification, for consort metrics and Bob."
        ),
    ] = False,
    workers: Workers = 1,
    engine: Engine = None,
    address: Address = None,
    data: Data = None,
    out: Out = None,
    log: Trackers = "",
    log_file: LogFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run all algorithms and seeds of a recipe. Prints a results table and checks its claims."""
    from consort.cli.show import Screen
    from consort.cli.watching import Watching
    from consort.experiment import recording
    from consort.experiment.comparing import Planned, plan, ready_runs
    from consort.experiment.loading import located
    from consort.results.comparison import judge

    if record and changes:
        raise UsageError(
            "--record writes down what a recipe comes to: change the recipe, not --set"
        )
    choice = EngineChoice(engine, workers, address)
    path, loaded = named_recipe(recipe, scale, changes)
    names = algorithms.split(",") if algorithms else list(loaded.algorithms)
    numbers = list(range(seeds)) if seeds else loaded.seeds
    root = out or default_folder(path, scale)
    with located(path, loaded):
        planned = plan(loaded, names, numbers, root, data)
    folders = [run.folder for run in planned]
    watching = Watching(log, log_file, root)
    with stops_on_sigterm(), Screen(quiet, json) as screen:

        def watch(run: Planned) -> Observer:
            return watching.of(screen, run.algorithm, run.seed, loaded.run.rounds, run.folder)

        for run in ready_runs(loaded, planned, data, choice, watch):
            run.go()
    if scores:
        from consort.use.scores import write_scores

        for folder in folders:
            write_scores(folder)
    if record:
        recording.record(record, path, scale, folders)
    verdicts = judge(loaded.claims, list(loaded.algorithms), folders)
    finish(folders, screen, loaded, root, verdicts)
    if check and any(verdict.outcome != "holds" for verdict in verdicts):
        raise typer.Exit(1)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a run.")],
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes; default: as before.")
    ] = None,
    engine: Engine = None,
    address: Address = None,
    log: Trackers = "",
    log_file: LogFile = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue an interrupted run. The results are those of an uninterrupted one."""
    from consort.cli.show import Screen
    from consort.cli.watching import Watching
    from consort.experiment.preparation import resume_run
    from consort.run.folder import read_description

    written = read_description(folder)
    watching = Watching(log, log_file, folder.resolve().parents[1])
    with stops_on_sigterm(), Screen(quiet, json) as screen:
        facts = written["algorithm"], written["seed"], written["rounds"]
        observer = watching.of(screen, *facts, folder)
        resume_run(folder, workers, observer, engine, address).go()
    finish([folder], screen)


def named_recipe(name: str, scale: str | None, changes: list[str]) -> tuple[Path, Recipe]:
    """Finds and loads a recipe.

    Args:
        name: A recipe file, or the name of a recipe that comes with Consort.
        scale: One of the recipe's scales.
        changes: Keys to override, each as `key=value`.

    Returns:
        The path of the recipe file, and the recipe.

    Raises:
        UsageError: If there is no such recipe, or it is not valid.
    """
    from consort.experiment.loading import load_recipe
    from consort.experiment.shipped import find_recipe

    path = find_recipe(name)
    return path, load_recipe(path, scale, changes, partial(typer.echo, err=True))


def default_folder(recipe: Path, scale: str | None) -> Path:
    """The folder for the runs of a recipe if the user names none."""
    return Path("runs") / (f"{recipe.stem}-{scale}" if scale else recipe.stem)


def finish(
    folders: list[Path],
    screen: Screen,
    recipe: Recipe | None = None,
    root: Path | None = None,
    verdicts: list[Verdict] | None = None,
) -> None:
    """Writes the report of finished runs and prints their results table.

    Args:
        folders: The folders of the runs.
        screen: Where to print.
        recipe: The recipe whose published numbers are shown.
        root: The folder for the report; that of the first run if not given.
        verdicts: The outcomes of the recipe's claims.
    """
    from consort.report.page import write_report
    from consort.results.result import Result

    results = [Result.load(folder) for folder in folders]
    published = recipe.published if recipe else []
    page = write_report(results, (root or folders[0]) / "report.html", verdicts or [], published)
    screen.results(results, verdicts or [], published, page)
