"""`consort.train` and `consort.compare`: runs from objects or recipes, with folder and report."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, TypeAlias
from weakref import finalize

from consort.core.algorithm import Algorithm
from consort.engines.choice import EngineChoice
from consort.errors import UsageError
from consort.experiment.comparing import Planned, plan, ready_runs, run_folder
from consort.experiment.loading import load_recipe
from consort.experiment.preflight import naming
from consort.experiment.recipe import Recipe
from consort.experiment.shipped import find_recipe
from consort.federation.federation import Federation
from consort.interactive.outcome import Outcome
from consort.interactive.progress import progress_of
from consort.results.claims import Claim
from consort.run.description import name_of
from consort.run.observer import Observer, Observers
from consort.run.run import Run
from consort.run.schedule import Schedule

Clients: TypeAlias = Federation | Callable[[int], Federation]
"""A federation, or a function that makes the one of a seed."""
Algorithms: TypeAlias = Sequence[Algorithm[Any] | str] | Mapping[str, Algorithm[Any]]
"""Algorithms, or those of a recipe by name."""


def train(
    clients: Clients | Recipe | str | Path,
    algorithm: Algorithm[Any] | str | None = None,
    rounds: int | Schedule | None = None,
    *,
    seed: int | None = None,
    folder: Path | str | None = None,
    workers: int = 1,
    observer: Observer | None = None,
    progress: bool = True,
    data: Path | str | None = None,
) -> Outcome:
    """Runs one algorithm, or continues the run if it was interrupted.

    Args:
        clients: A federation; or a recipe: an object, a file, or the name of one that comes with
            Consort.
        algorithm: The algorithm, or the name of one of the recipe's; its first if not given.
        rounds: The number of rounds, or a whole schedule; with a recipe, its own.
        seed: The seed; 0, or the recipe's first, if not given.
        folder: Where the run is saved; a temporary folder if not given.
        workers: The number of processes.
        observer: Is told how the run proceeds.
        progress: Whether to show a bar or one line per round.
        data: The folder of real data sets, for recipes; `CONSORT_DATA` if not given.

    Returns:
        The finished run with its results.

    Raises:
        UsageError: The run cannot start, or the folder holds another one.
        Failure: The run failed.

    Examples:
        >>> import consort
        >>> recipe = consort.Recipe(
        ...     clients=3,
        ...     data={"name": "synthetic_vectors", "examples": 90},
        ...     model={"name": "mlp"},
        ...     run=consort.Schedule(rounds=2),
        ...     algorithms={"fedavg": {}},
        ... )
        >>> consort.train(recipe, progress=False).result.last_round
        2
    """
    algorithms: Algorithms = [] if algorithm is None else [algorithm]
    if not algorithms and isinstance(clients, Recipe | str | Path):
        recipe = _recipe(clients)
        clients, algorithms = recipe, list(recipe.algorithms)[:1]
    seeds = None if seed is None else [seed]
    if seeds is None and isinstance(clients, Recipe):
        seeds = clients.seeds[:1]
    return compare(
        clients,
        algorithms,
        rounds,
        seeds=seeds,
        folder=folder,
        workers=workers,
        observer=observer,
        progress=progress,
        data=data,
    )


def compare(
    clients: Clients | Recipe | str | Path,
    algorithms: Algorithms = (),
    rounds: int | Schedule | None = None,
    *,
    seeds: Sequence[int] | None = None,
    folder: Path | str | None = None,
    workers: int = 1,
    observer: Observer | None = None,
    progress: bool = True,
    title: str = "",
    claims: Sequence[str] = (),
    data: Path | str | None = None,
) -> Outcome:
    """Runs several algorithms over several seeds, or continues what was interrupted.

    Args:
        clients: A federation, or a function that makes the federation of a seed; a single
            federation has the same data for all seeds, and other initial weights for each. Or a
            recipe: an object, a file, or the name of one that comes with Consort.
        algorithms: The algorithms, or a dictionary with their names in tables; with a recipe, names
            of its algorithms, all if empty.
        rounds: The number of rounds, or a whole schedule; with a recipe, its own.
        seeds: The seeds; 0, or the recipe's, if not given.
        folder: Where the runs are saved; a temporary folder if not given.
        workers: The number of processes.
        observer: Is told how the runs proceed.
        progress: Whether to show a bar or one line per round.
        title: The title of the report; with a recipe, its own.
        claims: What is expected, as in a recipe.
        data: The folder of real data sets, for recipes; `CONSORT_DATA` if not given.

    Returns:
        The finished runs with their results.

    Raises:
        UsageError: A run cannot start, a claim cannot be read, or a folder holds another run.
        Failure: A run failed.

    Examples:
        >>> import torch
        >>> import consort
        >>> from consort import Classification, Examples, Federation, Member, ModelSpec, Splits
        >>> from consort.algorithms.fedavg import FedAvg
        >>> from consort.algorithms.local_only import LocalOnly
        >>> examples = Examples(torch.eye(4), {"place": torch.arange(4)})
        >>> splits = Splits(examples, examples, examples)
        >>> model = ModelSpec.of({"name": "mlp"})
        >>> member = Member.of({"place": Classification(4)}, model, splits)
        >>> federation = Federation({"bank-1": member, "bank-2": member})
        >>> algorithms = [FedAvg(), LocalOnly()]
        >>> outcome = consort.compare(federation, algorithms, rounds=2, progress=False)
        >>> [result.algorithm for result in outcome.results]
        ['fedavg', 'local_only']
    """
    with ExitStack() as stack:
        root = Path(folder) if folder else Path(mkdtemp(prefix="consort-"))
        if not folder:
            stack.callback(rmtree, root)

        def watch(name: str, seed: int) -> Observer:
            shown = [progress_of(f"{name}, seed {seed}")] if progress else []
            return Observers(*shown, *([observer] if observer else []))

        if isinstance(clients, Recipe | str | Path):
            if rounds is not None or claims or title:
                raise UsageError("rounds, claims and title stand in the recipe: change it there")
            recipe = _recipe(clients)
            made = _from_recipe(recipe, algorithms, seeds, root, data, workers, watch)
            told: Sequence[str] = recipe.claims
        else:
            schedule = (
                rounds if isinstance(rounds, Schedule) else Schedule(rounds or Schedule().rounds)
            )
            named = _named(algorithms)
            for claim in claims:
                Claim.parse(claim, list(named))
            made = _from_objects(
                clients, named, schedule, seeds or (0,), root, workers, title, watch
            )
            told = claims
        runs = {}
        for key, run in made:
            run.go()
            runs[key] = run
        outcome = Outcome(root, runs, told)
        finalize(outcome, stack.pop_all().close)  # a temporary folder stays as long as its outcome
        return outcome


def _recipe(given: Recipe | str | Path) -> Recipe:
    return given if isinstance(given, Recipe) else load_recipe(find_recipe(str(given)))


def _from_recipe(
    recipe: Recipe,
    algorithms: Algorithms,
    seeds: Sequence[int] | None,
    root: Path,
    data: Path | str | None,
    workers: int,
    watch: Callable[[str, int], Observer],
) -> Iterator[tuple[tuple[str, int], Run]]:
    given_names = [name for name in algorithms if isinstance(name, str)]
    names = given_names or list(recipe.algorithms)
    if len(given_names) < len(algorithms):
        raise UsageError("with a recipe, algorithms are names of those in it")
    given = data or os.environ.get("CONSORT_DATA")
    place = Path(given) if given else None
    planned = plan(recipe, names, list(seeds or recipe.seeds), root, place)

    def watched(run: Planned) -> Observer:
        return watch(run.algorithm, run.seed)

    ready = ready_runs(recipe, planned, place, EngineChoice(workers=workers), watched)
    for one, run in zip(planned, ready, strict=True):
        yield (one.algorithm, one.seed), run


def _named(algorithms: Algorithms) -> dict[str, Algorithm[Any]]:
    """Algorithms with their names in tables, which are those of folders as well."""
    if isinstance(algorithms, Mapping):
        return dict(algorithms)
    found = [a for a in algorithms if isinstance(a, Algorithm)]
    if len(found) < len(algorithms) or not found:
        raise UsageError("with a federation, algorithms are objects, such as [FedAvg(), Ditto()]")
    for name, count in Counter(map(name_of, found)).items():
        if count > 1:
            raise UsageError(f"{name} is there {count} times: give names, as in {{'a': FedAvg()}}")
    return {name_of(algorithm): algorithm for algorithm in found}


def _from_objects(
    clients: Clients,
    algorithms: Mapping[str, Algorithm[Any]],
    schedule: Schedule,
    seeds: Sequence[int],
    root: Path,
    workers: int,
    title: str,
    watch: Callable[[str, int], Observer],
) -> Iterator[tuple[tuple[str, int], Run]]:
    """All runs; what would stop one of them is found before the first begins."""
    made = {}
    for seed in seeds:
        federation = (
            replace(clients, seed=seed) if isinstance(clients, Federation) else clients(seed)
        )
        for name, algorithm in algorithms.items():
            with naming(name):
                made[name, seed] = Run(
                    federation,
                    algorithm,
                    schedule,
                    seed,
                    run_folder(root, name, seed),
                    workers,
                    watch(name, seed),
                    name=name,
                    title=title,
                )
                algorithm.start(made[name, seed].federation.roster)
    yield from made.items()
