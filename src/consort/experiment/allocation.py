"""Who sits where: every client of a recipe with its share of a data set and its model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from consort.core.clients import NO_SERVER_DATA
from consort.core.randomness import derive, generator_for
from consort.data.dataset import Dataset, as_is
from consort.data.examples import Examples, Splits, gather
from consort.data.partition import Share, partition
from consort.data.registry import is_drawn, load_dataset
from consort.errors import UsageError
from consort.experiment.recipe import Group, Recipe
from consort.models.registry import ModelSpec
from consort.tasks import Classification, Task


@dataclass(frozen=True)
class Seat:
    """A client before its data are loaded: its group, its share of a data set, its model."""

    group: Group
    dataset: Dataset
    share: Share
    model: ModelSpec
    obfuscate: Callable[[Tensor], Tensor] = as_is

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
        parts = self.share.train, self.share.validation, self.share.test
        train, validation, test = map(self._examples, parts)
        return Splits(train, validation, test)

    def _examples(self, index: NDArray[np.int64]) -> Examples:
        raw = self.dataset.examples.only(list(self.share.tasks)).take(torch.from_numpy(index))
        targets = {name: self._renumbered(target) for name, target in raw.targets.items()}
        return Examples(self.obfuscate(self.dataset.prepare(raw.inputs)), targets)

    def _renumbered(self, target: Tensor) -> Tensor:
        if not self.group.classes:
            return target
        return (target[:, None] == torch.tensor(self.group.classes)).int().argmax(1)


def seats_of(recipe: Recipe, seed: int, data: Path | None) -> dict[str, Seat]:
    """Loads the data and cuts them into clients."""
    seats: dict[str, Seat] = {}
    for _, alike in groupby(sorted(recipe.all_groups, key=_pool), key=_pool):
        seats |= _seated(list(alike), recipe, seed, data)
    return seats


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
    dataset = dataset_of(first.data or {}, seed, data)
    if first.data == recipe.data:
        for evaluation in recipe.examinations.values():
            dataset = evaluation.kept(dataset)
    cut = first.partition or recipe.partition
    shares = iter(partition(dataset, sum(group.count for group in groups), cut, seed))
    seats = {}
    for group in groups:
        models, ways = recipe.models_of(group), recipe.obfuscations_of(group)
        for obfuscation in filter(None, ways):
            obfuscation(dataset.example[None], seed=seed)  # refuses inputs that it is not made for
        width = len(str(group.count - 1))
        for number in range(group.count):
            name = f"{group.name}-{number:0{width}d}"
            share = _limited(next(shares), group, dataset, name)
            way = ways[number % len(ways)]
            obfuscate = as_is if way is None else partial(way, seed=seed)
            model = models[number % len(models)]
            seats[name] = Seat(group, dataset, share, model, obfuscate)
    return seats


def server_data(recipe: Recipe, seed: int, folder: Path | None) -> Callable[[], Examples]:
    """What loads the examples of the server, which are none of the clients'.

    Generated data are drawn with another seed than those of the clients.

    Args:
        recipe: The recipe, with a table `server`.
        seed: The seed of the run.
        folder: The folder of real data sets.

    Raises:
        UsageError: If the server's data are those of the clients.
    """
    if recipe.server is None:
        raise UsageError(NO_SERVER_DATA)
    table, most = recipe.server.data, recipe.server.examples
    if any(table == group.data for group in recipe.all_groups) and not is_drawn(table["name"]):
        raise UsageError(
            "server.data are the data of the clients, which the server must not have: name others"
        )

    def load() -> Examples:
        found = dataset_of(table, derive(seed, "server data") % 2**31, folder)
        order = torch.randperm(len(found), generator=generator_for(seed, "server data"))
        inputs = gather(found.examples.inputs, order[:most].sort().values)
        return Examples(found.prepare(inputs), {})

    return load


def dataset_of(table: Mapping[str, Any], seed: int, folder: Path | None) -> Dataset:
    """The data set that a table of a recipe describes; the last few are kept in memory."""
    if "name" not in table:
        raise UsageError('the recipe names no data: write [data] with name = "synthetic_images"')
    drawn_with = seed if is_drawn(table["name"]) else 0
    return _dataset(json.dumps(table, sort_keys=True), drawn_with, folder)


@lru_cache(maxsize=4)
def _dataset(table: str, seed: int, folder: Path | None) -> Dataset:
    options = json.loads(table)
    return load_dataset(options.pop("name"), seed, folder, **options)


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
