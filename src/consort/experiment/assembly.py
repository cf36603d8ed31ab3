"""From a recipe to a federation and a run, with everything a reader needs to know written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from consort.core.algorithm import Algorithm
from consort.data.dataset import Dataset
from consort.data.partition import Share, fingerprint
from consort.engines.choice import EngineChoice, EngineName, Origin
from consort.errors import Failure, UsageError
from consort.experiment.allocation import Seat, dataset_of, seats_of
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import about_run, settle, written_recipe
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import parameter_count
from consort.run.folder import read_description
from consort.run.observer import Observer
from consort.run.run import Run
from consort.tasks import Task
from consort.training.evaluation import EvaluationExtra, Examinee


@dataclass(frozen=True)
class Assembly:
    """A federation with its description."""

    federation: Federation
    description: dict[str, Any]
    shares: dict[str, Share]


def assemble(recipe: Recipe, seed: int, data: Path | None) -> Assembly:
    """Loads the data, cuts them into clients, and gives every client its model."""
    seats = seats_of(recipe, seed, data)
    members = {
        name: Member(
            seat.tasks,
            seat.model,
            seat.dataset.example,
            seat.load,
            local=recipe.local_of(seat.group),
        )
        for name, seat in seats.items()
    }
    extras = _extras(recipe, seats, seed, data)
    federation = Federation(members, seed, recipe.batchnorm, recipe.compute, extras)
    shares = {name: seat.share for name, seat in sorted(seats.items())}
    return Assembly(federation, _description(recipe, seats, federation, shares), shares)


def _extras(
    recipe: Recipe, seats: Mapping[str, Seat], seed: int, folder: Path | None
) -> tuple[EvaluationExtra, ...]:
    """What the recipe wants to be measured besides the metrics of tasks."""
    clients = {name: Examinee(seat.tasks, seat.dataset) for name, seat in seats.items()}

    def load(table: Mapping[str, Any], seed: int) -> Dataset:
        return dataset_of(table, seed, folder)

    chosen = recipe.examinations.values()
    return tuple(evaluation.extra(clients, load, recipe.data, seed) for evaluation in chosen)


def _description(
    recipe: Recipe, seats: Mapping[str, Seat], federation: Federation, shares: dict[str, Share]
) -> dict[str, Any]:
    tasks: dict[str, Task] = {}
    for seat in seats.values():
        tasks |= seat.tasks
    measured: dict[str, Mapping[str, Any]] = {
        name: {
            "kind": type(task).__name__,
            "metric": task.metric,
            "higher_is_better": task.higher_is_better,
        }
        for name, task in tasks.items()
    }
    for extra in federation.extras:
        measured |= extra.tasks
    return {
        "title": recipe.title,
        "recipe": recipe.table,
        "partition": fingerprint(shares.values()),
        "tasks": measured,
        "clients": {
            name: {
                "group": seat.group.name,
                "model": str(seat.model),
                "parameters": parameter_count(federation.blueprint(name).model),
                "tasks": list(seat.tasks),
                "train": len(seat.share.train),
                "validation": len(seat.share.validation),
                "test": len(seat.share.test),
                "labels": seat.labels,
                "data": seat.dataset.name,
                "scan": seat.dataset.reader and seat.dataset.reader.table(),
            }
            for name, seat in sorted(seats.items())
        },
    }


def refuse_impossible(recipe: Recipe, names: list[str], seed: int, data: Path | None) -> None:
    """Raises what would stop one of several runs at its start, before the first of them begins."""
    federation = assemble(recipe, seed, data).federation
    for name in names:
        algorithm = recipe.algorithm(name)
        try:
            protected = federation.protected(*recipe.protections(name))
            members = protected.pooled() if algorithm.pools_data else protected
            algorithm.start(members.roster)
            members.check(algorithm, len(members.client_ids))
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error


def prepare_run(
    recipe: Recipe,
    name: str,
    seed: int,
    folder: Path,
    data: Path | None = None,
    engine: EngineChoice = EngineChoice(),
    observer: Observer | None = None,
) -> Run:
    """A run that is ready to go, described in `folder/run.json`; or one that goes on there."""
    algorithm = recipe.algorithm(name)
    protections = recipe.protections(name)
    assembly = assemble(recipe, seed, data)
    description = assembly.description | about_run(recipe, name, seed)
    description |= {
        **dict.fromkeys(("privacy", "secure")),
        **{protection.table: asdict(protection) for protection in protections},
        **engine.description,
        "data": str(data.resolve()) if data else None,
    }
    origin = Origin(
        f"{__name__}:reassemble",
        {key: description[key] for key in ("recipe", "algorithm", "seed", "data", "partition")},
    )
    run = Run(
        assembly.federation.protected(*protections),
        algorithm,
        recipe.run,
        seed,
        folder,
        engine.workers,
        observer or Observer(),
        lambda host: engine.start(host, origin),
    )
    algorithm.start(run.federation.roster)  # refuses unlike clients before anything is written
    settle(folder, description, assembly.shares)
    return run


def reassemble(
    recipe: dict[str, Any], algorithm: str, seed: int, data: str | None, partition: str
) -> tuple[Federation, Algorithm[Any]]:
    """The clients of a run as another machine makes them from what `run.json` says."""
    settings = written_recipe(recipe, "the run")
    assembly = assemble(settings, seed, Path(data) if data else None)
    if assembly.description["partition"] != partition:
        raise Failure(f"the data of this machine ({data or 'no --data'}) are not those of the run")
    chosen = settings.algorithm(algorithm)
    federation = assembly.federation.protected(*settings.protections(algorithm))
    return federation.pooled() if chosen.pools_data else federation, chosen


def resume_run(
    folder: Path,
    workers: int | None = None,
    observer: Observer | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> Run:
    """The run in a folder, ready to go on where it stopped; on its engine if none is given."""
    written = read_description(folder)
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
