"""From a recipe to a federation and a run, with everything a reader needs to know written down."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import consort
from consort.algorithm import Algorithm
from consort.checkpoint import write_file
from consort.data.partition import Share, fingerprint, load_partition, save_partition
from consort.engines.choice import EngineChoice, EngineName, Origin
from consort.errors import Failure, UsageError
from consort.federation import Federation, Member
from consort.metrics import verification
from consort.models.registry import parameter_count
from consort.recipe import Recipe
from consort.recipe_file import recipe_of
from consort.run import Run, Watcher
from consort.seats import Seat, example_of, seats_of
from consort.tasks import Task
from consort.unseen import verification_of


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
            example_of(seat.dataset),
            seat.load,
            local=recipe.local_of(seat.group),
        )
        for name, seat in seats.items()
    }
    exam = verification_of(recipe, seats, seed, data)
    federation = Federation(members, seed, recipe.batchnorm, recipe.compute, exam)
    federation.refuses_imprints = recipe.refuse_imprints
    shares = {name: seat.share for name, seat in sorted(seats.items())}
    return Assembly(federation, _description(recipe, seats, federation, shares), shares)


def _description(
    recipe: Recipe, seats: Mapping[str, Seat], federation: Federation, shares: dict[str, Share]
) -> dict[str, Any]:
    tasks: dict[str, Task] = {}
    for seat in seats.values():
        tasks |= seat.tasks
    measured = {
        name: {
            "kind": type(task).__name__,
            "metric": task.metric,
            "higher_is_better": task.higher_is_better,
        }
        for name, task in tasks.items()
    }
    if recipe.verification:
        measured[verification.TASK] = {"metric": verification.METRIC, "higher_is_better": False}
    return {
        "title": recipe.title,
        "recipe": json.loads(Recipe.wire.dump_json(recipe)),
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
                "scan": seat.dataset.scan and asdict(seat.dataset.scan),
            }
            for name, seat in sorted(seats.items())
        },
    }


def environment() -> dict[str, Any]:
    """What a reader needs to judge timings and to repeat a run."""
    cpu = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = lines[0].partition(":")[2].strip() if lines else ""
    return {
        "consort": consort.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu,
        "cores": os.cpu_count(),
    }


def refuse_impossible(recipe: Recipe, names: list[str], seed: int, data: Path | None) -> None:
    """Raises what would stop one of several runs at its start, before the first of them begins."""
    federation = assemble(recipe, seed, data).federation
    for name in names:
        algorithm = recipe.algorithm(name)
        members = federation.pooled() if algorithm.pools_data else federation
        around = recipe.around(name)
        try:
            algorithm.start(members.roster)
            if around.secure:
                around.secure.check(
                    algorithm, len(members.client_ids), around.robust, around.attack
                )
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error


def about_run(recipe: Recipe, name: str, seed: int) -> dict[str, Any]:
    """What `run.json` says about the algorithm and the machine."""
    algorithm = recipe.algorithm(name)
    return {
        "algorithm": name,
        "kind": type(algorithm).__name__,
        "description": (type(algorithm).__doc__ or "").partition("\n")[0],
        "reports": algorithm.reports,
        "seed": seed,
        "rounds": recipe.run.rounds,
        "environment": environment(),
    }


def prepare_run(
    recipe: Recipe,
    name: str,
    seed: int,
    folder: Path,
    data: Path | None = None,
    engine: EngineChoice = EngineChoice(),
    watcher: Watcher | None = None,
) -> Run:
    """A run that is ready to go, described in `folder/run.json`; or one that goes on there."""
    algorithm = recipe.algorithm(name)
    around = recipe.around(name)
    assembly = assemble(recipe, seed, data)
    description = assembly.description | about_run(recipe, name, seed)
    description |= {
        "privacy": around.privacy and asdict(around.privacy),
        "secure": around.secure and asdict(around.secure),
        **engine.description,
        "data": str(data.resolve()) if data else None,
    }
    origin = Origin(
        f"{__name__}:reassemble",
        {key: description[key] for key in ("recipe", "algorithm", "seed", "data", "partition")},
    )
    run = Run(
        around.clients(assembly.federation, seed),
        algorithm,
        recipe.run,
        seed,
        folder,
        engine.workers,
        watcher or Watcher(),
        lambda host: engine.start(host, origin),
        around.robust,
        around.attack,
    )
    algorithm.start(run.federation.roster)  # refuses unlike clients before anything is written
    settle(folder, description, assembly.shares)
    return run


_DECIDES = ("algorithm", "seed", "recipe", "partition")
_TELLS = ("title", "about", "average_rounds", "seeds", "published", "claims", "scales")
"""Keys of a recipe that decide no number of a run."""


def deciding(recipe: dict[str, Any], algorithm: str) -> dict[str, Any]:
    """Of a recipe as it is written down, what decides the numbers of one algorithm."""
    settings = {key: value for key, value in recipe.items() if key not in _TELLS}
    return settings | {"algorithms": {algorithm: recipe["algorithms"].get(algorithm)}}


def _decisive(description: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a run to go on."""
    recipe = deciding(description["recipe"], description["algorithm"])
    return {key: description[key] for key in _DECIDES} | {"recipe": recipe}


def settle(folder: Path, description: dict[str, Any], shares: dict[str, Share] | None) -> None:
    """Writes the description down, or checks that it is still the one written there.

    There are no shares where each client has data of its own.
    """
    path = folder / "run.json"
    if path.exists():
        written = read_description(folder)
        filled = _filled_in(written["recipe"], str(path))
        before, now = _decisive(written | {"recipe": filled}), _decisive(description)
        for key in _DECIDES:
            if before[key] != now[key]:
                raise UsageError(
                    f"{folder} holds a run with another {key}: choose another --out, or delete it"
                )
        if shares is not None:
            _check_partition(folder / "partition.json", written["partition"])
        if written["recipe"] != description["recipe"]:  # what only tells readers something
            told = written | {key: description[key] for key in ("title", "recipe")}
            write_file(path, json.dumps(told, indent=1).encode())
        return
    folder.mkdir(parents=True, exist_ok=True)
    if shares is not None:
        save_partition(folder / "partition.json", shares)
    write_file(path, json.dumps(description, indent=1).encode())


def _filled_in(written: dict[str, Any], source: str) -> dict[str, Any]:
    """A recipe as this version writes it down: keys that came later have their defaults."""
    filled: dict[str, Any] = json.loads(Recipe.wire.dump_json(_recipe_of(written, source)))
    return filled


def _check_partition(path: Path, expected: str) -> None:
    if fingerprint(load_partition(path).values()) != expected:
        raise Failure(f"{path} was changed since the run began")


_NEEDED = (*_DECIDES, "rounds", "workers", "data")


def read_description(folder: Path) -> dict[str, Any]:
    """What `run.json` says about the run in a folder."""
    path = folder / "run.json"
    if not path.exists():
        raise UsageError(f"{folder} holds no run: there is no run.json in it")
    try:
        description: dict[str, Any] = json.loads(path.read_text())
        missing = [key for key in _NEEDED if key not in description]
    except (ValueError, TypeError) as error:
        raise Failure(f"{path} is damaged: start the run again in a new folder") from error
    if missing:
        raise Failure(f"{path} says nothing about {', '.join(missing)}: start the run again")
    return description


def reassemble(
    recipe: dict[str, Any], algorithm: str, seed: int, data: str | None, partition: str
) -> tuple[Federation, Algorithm[Any]]:
    """The clients of a run as another machine makes them from what `run.json` says."""
    settings = _recipe_of(recipe, "the run")
    assembly = assemble(settings, seed, Path(data) if data else None)
    if assembly.description["partition"] != partition:
        raise Failure(f"the data of this machine ({data or 'no --data'}) are not those of the run")
    chosen = settings.algorithm(algorithm)
    federation = settings.around(algorithm).clients(assembly.federation, seed)
    return federation.pooled() if chosen.pools_data else federation, chosen


def _recipe_of(written: dict[str, Any], source: str) -> Recipe:
    return recipe_of({key: value for key, value in written.items() if value is not None}, source)


def resume_run(
    folder: Path,
    workers: int | None = None,
    watcher: Watcher | None = None,
    engine: EngineName | None = None,
    address: str | None = None,
) -> Run:
    """The run in a folder, ready to go on where it stopped; on its engine if none is given."""
    written = read_description(folder)
    if written.get("engine") == "flower":
        raise UsageError(f"{folder} is a run of consort server: give that command again to go on")
    name = engine or written.get("engine")
    return prepare_run(
        _recipe_of(written["recipe"], str(folder / "run.json")),
        written["algorithm"],
        written["seed"],
        folder,
        Path(written["data"]) if written["data"] else None,
        EngineChoice(
            EngineName(name) if name else None,
            workers or written["workers"],
            address or (written.get("address") if name == EngineName.ray else None),
        ),
        watcher,
    )
