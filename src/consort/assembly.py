"""From a recipe to a federation and a run, with everything a reader needs to know written down."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import consort
from consort.algorithm import Algorithm
from consort.checkpoint import write_file
from consort.data.dataset import Dataset
from consort.data.examples import Examples, Splits
from consort.data.partition import (
    Share,
    fingerprint,
    load_partition,
    partition,
    save_partition,
)
from consort.data.registry import load_dataset
from consort.engines.choice import EngineChoice, EngineName, Origin
from consort.errors import Failure, UsageError
from consort.federation import Federation, Member
from consort.models.registry import ModelSpec, parameter_count
from consort.recipe import Group, Recipe, recipe_of
from consort.run import Run, Watcher
from consort.tasks import Classification, Task


@dataclass(frozen=True)
class Seat:
    """A client before its data are loaded: its group, its share of a data set, its model."""

    group: Group
    dataset: Dataset
    share: Share
    model: ModelSpec

    @property
    def tasks(self) -> dict[str, Task]:
        """The client's tasks: its group's choice of those it has labels for."""
        if not self.group.classes:
            return {name: self.dataset.tasks[name] for name in self.share.tasks}
        (name,) = self.share.tasks
        return {name: Classification(len(self.group.classes))}

    @property
    def labels(self) -> dict[str, int]:
        """How many examples of each class the client holds, in all splits."""
        index = np.concatenate([self.share.train, self.share.validation, self.share.test])
        values, counts = np.unique(self.dataset.labels[index], return_counts=True)
        return {str(value): int(count) for value, count in zip(values, counts, strict=True)}

    def load(self) -> Splits:
        """Brings the client's examples into memory."""
        share = self.share
        return Splits(*map(self._examples, (share.train, share.validation, share.test)))

    def _examples(self, index: NDArray[np.int64]) -> Examples:
        raw = self.dataset.examples.only(list(self.share.tasks)).take(torch.from_numpy(index))
        targets = {name: self._renumbered(target) for name, target in raw.targets.items()}
        return Examples(self.dataset.prepare(raw.inputs), targets)

    def _renumbered(self, target: Tensor) -> Tensor:
        if not self.group.classes:
            return target
        return (target[:, None] == torch.tensor(self.group.classes)).int().argmax(1)


@dataclass(frozen=True)
class Assembly:
    """A federation with its description."""

    federation: Federation
    description: dict[str, Any]
    shares: dict[str, Share]


def assemble(recipe: Recipe, seed: int, data: Path | None) -> Assembly:
    """Loads the data, cuts them into clients, and gives every client its model."""
    seats: dict[str, Seat] = {}
    for _, alike in groupby(sorted(recipe.all_groups, key=_pool), key=_pool):
        seats |= _seated(list(alike), recipe, seed, data)
    members = {
        name: Member(seat.tasks, seat.model, _example(seat.dataset), seat.load)
        for name, seat in seats.items()
    }
    federation = Federation(members, seed, recipe.batchnorm, recipe.compute)
    shares = {name: seat.share for name, seat in sorted(seats.items())}
    return Assembly(federation, _description(recipe, seats, federation, shares), shares)


def _pool(group: Group) -> str:
    """Groups with the same data share them: nobody holds another's examples."""
    return json.dumps(group.data, sort_keys=True)


def _seated(
    groups: Sequence[Group], recipe: Recipe, seed: int, data: Path | None
) -> dict[str, Seat]:
    first = groups[0]
    for other in groups:
        if other.partition != first.partition:
            raise UsageError(
                f"groups {first.name} and {other.name} cut the same data in different ways, so one "
                "would be tested on what the other trains on: give them one partition"
            )
    dataset = _dataset(json.dumps(first.data or {}, sort_keys=True), seed, data)
    cut = first.partition or recipe.partition
    shares = iter(partition(dataset, sum(group.count for group in groups), cut, seed))
    seats = {}
    for group in groups:
        models = recipe.models_of(group)
        width = len(str(group.count - 1))
        for number in range(group.count):
            name = f"{group.name}-{number:0{width}d}"
            share = _limited(next(shares), group, dataset, name)
            seats[name] = Seat(group, dataset, share, models[number % len(models)])
    return seats


@lru_cache(maxsize=2)
def _dataset(table: str, seed: int, folder: Path | None) -> Dataset:
    options = json.loads(table)
    if "name" not in options:
        raise UsageError('the recipe names no data: write [data] with name = "synthetic_images"')
    return load_dataset(options.pop("name"), seed, folder, **options)


@lru_cache(maxsize=8)
def _example(dataset: Dataset) -> Tensor:
    return dataset.prepare(dataset.examples.inputs[:1])[0]


def _limited(share: Share, group: Group, dataset: Dataset, client: str) -> Share:
    """A share without the tasks and classes that its group leaves out."""
    unknown = [task for task in group.tasks if task not in dataset.tasks]
    if unknown:
        known = ", ".join(dataset.tasks)
        raise UsageError(f"group {group.name}: {dataset.name} has no task {unknown[0]!r} ({known})")
    tasks = tuple(task for task in share.tasks if not group.tasks or task in group.tasks)
    if not tasks:
        raise UsageError(f"client {client} is left without a task: change `tasks` of its group")
    if not group.classes:
        return Share(share.train, share.validation, share.test, tasks)
    if len(tasks) > 1:
        raise UsageError(f"group {group.name}: `classes` needs data with a single task")
    if len(set(group.classes)) < len(group.classes):
        raise UsageError(f"group {group.name}: classes = {group.classes} names one of them twice")
    if len(group.classes) == 1:
        raise UsageError(
            f"group {group.name}: classes = {group.classes} leaves nothing to tell apart: "
            "name at least two"
        )
    strange = set(group.classes) - set(dataset.labels.tolist())
    if strange:
        raise UsageError(f"group {group.name}: {dataset.name} has no class {min(strange)}")
    train, validation, test = (
        part[np.isin(dataset.labels[part], group.classes)]
        for part in (share.train, share.validation, share.test)
    )
    if not (len(train) and len(validation) and len(test)):
        raise UsageError(
            f"client {client} holds no example of the classes {group.classes} in one of its "
            "splits: choose more classes, fewer clients or a milder partition"
        )
    return Share(train, validation, test, tasks)


def _description(
    recipe: Recipe, seats: Mapping[str, Seat], federation: Federation, shares: dict[str, Share]
) -> dict[str, Any]:
    tasks: dict[str, Task] = {}
    for seat in seats.values():
        tasks |= seat.tasks
    return {
        "title": recipe.title,
        "recipe": json.loads(Recipe.wire.dump_json(recipe)),
        "partition": fingerprint(shares.values()),
        "tasks": {
            name: {"metric": task.metric, "higher_is_better": task.higher_is_better}
            for name, task in tasks.items()
        },
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
        try:
            algorithm.start(members.roster)
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
    assembly = assemble(recipe, seed, data)
    description = assembly.description | about_run(recipe, name, seed)
    description |= {**engine.description, "data": str(data.resolve()) if data else None}
    origin = Origin(
        f"{__name__}:reassemble",
        {key: description[key] for key in ("recipe", "algorithm", "seed", "data", "partition")},
    )
    run = Run(
        assembly.federation,
        algorithm,
        recipe.run,
        seed,
        folder,
        engine.workers,
        watcher or Watcher(),
        lambda host: engine.start(host, origin),
    )
    algorithm.start(run.federation.roster)  # refuses unlike clients before anything is written
    settle(folder, description, assembly.shares)
    return run


_DECIDES = ("algorithm", "seed", "recipe", "partition")
_TELLS = ("title", "about", "seeds", "published", "claims", "scales")
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
        before, now = _decisive(written), _decisive(description)
        for key in _DECIDES:
            if before[key] != now[key]:
                raise UsageError(
                    f"{folder} holds a run with another {key}: choose another --out, or delete it"
                )
        if shares is not None:
            _check_partition(folder / "partition.json", written["partition"])
        return
    folder.mkdir(parents=True, exist_ok=True)
    if shares is not None:
        save_partition(folder / "partition.json", shares)
    write_file(path, json.dumps(description, indent=1).encode())


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
    return assembly.federation.pooled() if chosen.pools_data else assembly.federation, chosen


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
