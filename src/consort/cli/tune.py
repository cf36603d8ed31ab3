"""The command `tune`: searches settings with equal budgets, then confirms them with new seeds."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from consort.cli.options import Address, Changes, Data, Json, Out, Quiet, RecipeName, Scale
from consort.cli.running import default_folder, finish, named_recipe
from consort.cli.stopping import stops_on_sigterm
from consort.engines.choice import EngineChoice, EngineName
from consort.errors import Failure, UsageError

if TYPE_CHECKING:
    from consort.experiment.jobs import JobRunner


def tune(
    recipe: RecipeName,
    changes: Changes = [],  # noqa: B006
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs at the same time; default: the number of cores."),
    ] = None,
    engine: Annotated[
        EngineName | None,
        typer.Option(help="ray: make the runs on a Ray cluster instead of in processes here."),
    ] = None,
    address: Address = None,
    scale: Scale = None,
    data: Data = None,
    out: Out = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Search the best settings of every algorithm, by validation data and with equal budgets.

    Then runs all algorithms with their best settings and the recipe's own seeds, which the search
    never saw.
    """
    from json import dumps

    from consort.cli.show import Screen
    from consort.core.files import write_file
    from consort.experiment.comparing import plan
    from consort.experiment.tuning import Search, job_of, tuned_settings, with_points
    from consort.report.tuning import write_tuning
    from consort.results.comparison import judge

    path, loaded = named_recipe(recipe, scale, changes)
    root = out or default_folder(path, scale).with_name(f"{default_folder(path, scale).name}-tuned")

    def say(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    runner = _runner(EngineChoice(engine, address=address), jobs, loaded.compute.threads)
    with stops_on_sigterm(), runner as processes:
        search = Search(loaded, root, data, processes, say)
        best = search.go()
        tuned = with_points(loaded, {name: trial.point for name, trial in best.items()})
        write_file(root / "tuned.json", dumps(tuned_settings(best), indent=1).encode())
        page = write_tuning(
            search.trials, best, root / "tuning.html", loaded.title, search.deciding[1]
        )
        say(f"search: {page}")
        planned = plan(tuned, list(tuned.algorithms), tuned.seeds, root / "final", data)
        todo = [job_of(tuned, run.algorithm, run.seed, run.folder, data) for run in planned]
        for run, error in zip(planned, processes.run(todo), strict=True):
            if error:
                raise Failure(f"{run.algorithm}, seed {run.seed}: {error}")
            say(f"{run.algorithm}, seed {run.seed}: finished")
    folders = [run.folder for run in planned]
    verdicts = judge(tuned.claims, list(tuned.algorithms), folders)
    finish(folders, Screen(quiet, json), tuned, root, verdicts)


def _runner(
    choice: EngineChoice, jobs: int | None, threads: int
) -> AbstractContextManager[JobRunner]:
    from consort.experiment.jobs import opened

    count = jobs or os.cpu_count() or 1
    if choice.name is None:
        return opened(count)
    if choice.name != EngineName.ray:
        raise UsageError(
            "tune makes whole runs in processes of their own: leave out --engine, or write "
            "--engine ray"
        )
    from consort.experiment.ray_jobs import ray_opened

    return ray_opened(count, threads, choice.address)
