"""The one place that says no before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.experiment.assembly import Assembly, assemble, run_of
from consort.experiment.recipe import Recipe
from consort.federation.federation import Federation
from consort.results.claims import Claim
from consort.results.expected import known_values
from consort.results.gains import DELTA_M
from consort.results.values import TUNED, named_values
from consort.run.run import Run
from consort.training.local import LocalTraining

_AUDITED = re.compile(
    r"(imprint|inversion|rescaled)_(mse|psnr|ssim|lpips|recognised)"
    r"|membership_(accuracy|auc) \(.+\)|mutual_information|entropy"
)
"""The figures of an audit, which papers print as well."""


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
    _refuse_unknown_metrics(recipe, assembly)
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
    if recipe.server:
        yield (
            "[server.data] works in simulations only, since a server among institutions has "
            "weights and no models: remove it from the recipe"
        )
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


def _refuse_unknown_metrics(recipe: Recipe, assembly: Assembly) -> None:
    """Refuses claims and published numbers about something that no run measures."""
    if not (recipe.claims or recipe.published):
        return
    reports = {recipe.algorithm(name).reports for name in recipe.algorithms}
    tuned = recipe.run.tuning_epochs > 0 or TUNED in reports
    own = {about["metric"] for about in assembly.description["tasks"].values()}
    costs = named_values(own, own, own if tuned else (), flops=recipe.compute.count_flops)
    try:
        _check_metrics(recipe, [*costs, DELTA_M])
    except UsageError:
        # The other metrics of tasks are known only once initial models are scored.
        known = [
            known_values(federation, tuned=tuned) for federation in _prepared(recipe, assembly)
        ]
        if all(known):
            _check_metrics(recipe, sorted({name for names in known for name in names}))


def _prepared(recipe: Recipe, assembly: Assembly) -> Iterator[Federation]:
    """The federation, and what protections of single algorithms make of it."""
    yield assembly.federation
    for name in recipe.algorithms:
        for protection in recipe.protections(name):
            with suppress(UsageError):  # refused where that algorithm is to run
                changed = protection.prepared(assembly.federation)
                if changed is not assembly.federation:
                    yield changed


def _check_metrics(recipe: Recipe, known: Sequence[str]) -> None:
    for claim in recipe.claims:
        Claim.parse(claim, list(recipe.algorithms), known)
    for table in recipe.published:
        if table.metric not in known and not _AUDITED.fullmatch(table.metric):
            raise UsageError(
                f"published numbers ({table.source}): there is no metric "
                f"{did_you_mean(table.metric, known)}"
            )
