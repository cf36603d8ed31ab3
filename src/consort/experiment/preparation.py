"""Runs of a recipe, ready to go: new ones, and those that go on in their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consort.core.algorithm import Algorithm
from consort.engines.choice import EngineChoice, EngineName, Origin
from consort.errors import Failure, UsageError
from consort.experiment.assembly import Assembly, assemble, run_of
from consort.experiment.preflight import preflight
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import about_run, refuse_python, settle, written_recipe
from consort.federation.federation import Federation
from consort.run.folder import read_description
from consort.run.observer import Observer
from consort.run.run import Run


def prepare_run(
    recipe: Recipe,
    name: str,
    seed: int,
    folder: Path,
    data: Path | None = None,
    engine: EngineChoice = EngineChoice(),
    observer: Observer | None = None,
) -> Run:
    """A run that is ready to go, described in `folder/run.json`; or one that goes on there.

    Args:
        recipe: The experiment.
        name: One of its algorithms.
        seed: The seed of the run.
        folder: Where the run writes.
        data: The folder of real data sets.
        engine: What carries the calls; it decides no number.
        observer: Is told how the run goes.

    Raises:
        UsageError: The run cannot start, or the folder holds another run.
    """
    if (folder / "run.json").exists():  # it was not refused then, and its claims may be older
        assembly = assemble(recipe, seed, data)
    else:
        assembly = preflight(recipe, [name], seed, data)
    return ready_run(recipe, name, assembly, folder, data, engine, observer)


def ready_run(
    recipe: Recipe,
    name: str,
    assembly: Assembly,
    folder: Path,
    data: Path | None,
    engine: EngineChoice,
    observer: Observer | None,
) -> Run:
    """The same for clients that are assembled and that `preflight` has seen."""
    seed = assembly.federation.seed
    description = assembly.description | about_run(recipe, name, seed)
    description |= {
        **engine.description,
        "data": str(data.resolve()) if data else None,
    }
    origin = Origin(
        f"{__name__}:reassemble",
        {key: description[key] for key in ("recipe", "algorithm", "seed", "data", "partition")},
    )
    run = run_of(
        recipe,
        name,
        assembly.federation,
        folder,
        workers=engine.workers,
        observer=observer or Observer(),
        engine=lambda host: engine.start(host, origin),
    )
    settle(folder, description, assembly.shares, run)
    return run


def reassemble(
    recipe: dict[str, Any], algorithm: str, seed: int, data: str | None, partition: str
) -> tuple[Federation, Algorithm[Any]]:
    """The clients of a run as another machine makes them from what `run.json` says."""
    settings = written_recipe(recipe, "the run")
    assembly = assemble(settings, seed, Path(data) if data else None)
    if assembly.description["partition"] != partition:
        raise Failure(f"the data of this machine ({data or 'no --data'}) are not those of the run")
    run = run_of(settings, algorithm, assembly.federation)
    return run.federation, run.algorithm


def resume_run(
    folder: Path,
    workers: int | None = None,
    observer: Observer | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> Run:
    """The run in a folder, ready to go on where it stopped; on its engine if none is given."""
    written = read_description(folder)
    refuse_python(folder, written)
    if written.get("engine") == "flower":
        raise UsageError(f"{folder} is a run of consort server: give that command again to go on")
    name = engine or written.get("engine")
    return prepare_run(
        written_recipe(written["recipe"], str(folder / "run.json")),
        written["algorithm"],
        written["seed"],
        folder,
        Path(written["data"]) if written["data"] else None,
        EngineChoice(
            EngineName(name) if name else None,
            workers or written["workers"],
            address or (written.get("address") if name == EngineName.ray else None),
        ),
        observer,
    )
