"""From a recipe to a federation and a run, with everything a reader needs to know written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from consort.data.dataset import Dataset
from consort.data.partition import Share, fingerprint
from consort.experiment.allocation import Seat, dataset_of, seats_of, server_data
from consort.experiment.recipe import Recipe
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import parameter_count
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
            examples=len(seat.share.train),
        )
        for name, seat in seats.items()
    }
    extras = _extras(recipe, seats, seed, data)
    federation = Federation(members, seed, recipe.batchnorm, recipe.compute, extras)
    if recipe.server is not None:
        federation = replace(federation, server_data=server_data(recipe, seed, data))
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


def run_of(
    recipe: Recipe, name: str, federation: Federation, folder: Path | None = None, **how: Any
) -> Run:
    """The run of one algorithm with what the recipe puts around it, not begun; nothing is written.

    Args:
        recipe: The experiment.
        name: One of its algorithms.
        federation: Its clients, as `assemble` makes them.
        folder: Where the run will write.
        how: Other fields of `Run`, which decide no number.

    Raises:
        UsageError: What is around the algorithm does not fit it, or does not fit the clients.
    """
    return Run(
        federation.protected(*recipe.protections(name)),
        recipe.algorithm(name),
        recipe.schedule(name),
        federation.seed,
        folder,
        **how,
    )
