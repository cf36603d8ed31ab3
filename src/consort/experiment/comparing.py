"""The runs of a comparison: all refused before the first begins, or none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from consort.engines.choice import EngineChoice
from consort.experiment.assembly import assemble, run_of
from consort.experiment.preflight import preflight
from consort.experiment.preparation import ready_run
from consort.experiment.recipe import Recipe
from consort.experiment.run_folder import about_run, refuse_another_run
from consort.run.observer import Observer
from consort.run.run import Run


class Planned(NamedTuple):
    """One run of a comparison."""

    algorithm: str
    seed: int
    folder: Path


def plan(
    recipe: Recipe, names: Sequence[str], seeds: Sequence[int], root: Path, data: Path | None
) -> list[Planned]:
    """The runs of a recipe, seed by seed, if all of them can start.

    Args:
        recipe: The experiment.
        names: Those of its algorithms that are to run.
        seeds: The seeds.
        root: Where their folders are made.
        data: The folder of real data sets.

    Raises:
        UsageError: A run cannot start, or its folder holds another run.
    """
    runs = [Planned(name, seed, run_folder(root, name, seed)) for seed in seeds for name in names]
    for seed in seeds:
        assembly = preflight(recipe, names, seed, data)
        for run in runs:
            if run.seed == seed:
                about = assembly.description | about_run(recipe, run.algorithm, seed)
                made = run_of(recipe, run.algorithm, assembly.federation)
                refuse_another_run(run.folder, about, made)
    return runs


def run_folder(root: Path, algorithm: str, seed: int) -> Path:
    """The folder of a run.

    Args:
        root: The folder of all runs.
        algorithm: The name of the algorithm.
        seed: The seed.
    """
    return root / algorithm / f"seed-{seed}"


def ready_runs(
    recipe: Recipe,
    runs: Sequence[Planned],
    data: Path | None,
    engine: EngineChoice,
    watch: Callable[[Planned], Observer],
) -> Iterator[Run]:
    """Planned runs, one after the other, ready to go.

    Args:
        recipe: The experiment.
        runs: The runs, as `plan` returns them.
        data: The folder of real data sets.
        engine: What carries the calls.
        watch: Makes the observer of a run.
    """
    for run in runs:
        assembly = assemble(recipe, run.seed, data)
        yield ready_run(recipe, run.algorithm, assembly, run.folder, data, engine, watch(run))
