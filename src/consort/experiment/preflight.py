"""The one place that says no before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from consort.errors import UsageError
from consort.experiment.assembly import Assembly, assemble, run_of
from consort.experiment.metric_names import refuse_unknown_metrics
from consort.experiment.recipe import Recipe
from consort.run.run import Run
from consort.training.local import LocalTraining


def preflight(recipe: Recipe, names: Sequence[str], seed: int, data: Path | None) -> Assembly:
    """Refuses what would stop one of several runs, before the first of them begins.

    Args:
        recipe: The experiment.
        names: Those of its algorithms that are to run.
        seed: The seed of the runs.
        data: The folder of real data sets.

    Returns:
        The federation that all these runs have.

    Raises:
        UsageError: A run cannot start, or a claim or a published number names what no run measures.
    """
    assembly = assemble(recipe, seed, data)
    for name in names:
        recipe.algorithm(name)
        with naming(name):
            run = run_of(recipe, name, assembly.federation)
            run.algorithm.start(run.federation.roster)
            _refuse_training(run)
    refuse_unknown_metrics(recipe, assembly)
    return assembly


def _refuse_training(run: Run) -> None:
    """Refuses local training that would fail at its first step."""
    for client in run.federation.client_ids:
        member = run.federation.members[client]
        local = getattr(run.algorithm.with_local(member.local), "local", None)
        if isinstance(local, LocalTraining):
            local.check(member.tasks)


@contextmanager
def naming(algorithm: str) -> Iterator[None]:
    """Puts the algorithm's name before what is wrong with its run."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{algorithm}: {error}") from error


def refuse_among_institutions(recipe: Recipe, name: str) -> None:
    """Refuses what has no effect under `consort server`, where each client brings its own data.

    Args:
        recipe: The experiment.
        name: The algorithm that is to run.

    Raises:
        UsageError: A key of the recipe would be ignored.
    """
    if recipe.algorithm(name).pools_data:
        raise UsageError(f"{name} pools the data: it cannot run between institutions")
    for problem in _ignored_among_institutions(recipe, name):
        raise UsageError(problem)


def _ignored_among_institutions(recipe: Recipe, name: str) -> Iterator[str]:
    if any(getattr(protection, "by", ()) for protection in recipe.protections(name)):
        yield "[attack] works in simulations only: remove it from the recipe"
    if recipe.groups:
        yield (
            "[[groups]] are those of a simulation: write `clients = 3` in the recipe, and what a "
            "client brings in its client.toml"
        )
    if recipe.data:
        yield "[data] belong into the client.toml of each client: remove them from the recipe"
    for key, value in (("model", recipe.model), ("obfuscation", recipe.obfuscation)):
        if isinstance(value, list) and len(value) > 1:
            yield (
                f"{key} is a list for clients to take turns, but each client is alone: give one in "
                "the recipe, and others in the client.toml of those that differ"
            )
    if recipe.partition.by != "iid":
        yield (
            f'partition.by = "{recipe.partition.by}" divides one data set among clients, but each '
            "client has its own: remove it"
        )
    if recipe.compute.cohort_step:
        yield "compute.cohort_step trains clients of one machine in one step: remove it"
    for unseen, table in recipe.unseen.items():
        if table.get("users"):
            yield (
                f"unseen.{unseen}.users are taken from the recipe's data, but each client has its "
                f"own: name other data as unseen.{unseen}.data"
            )
