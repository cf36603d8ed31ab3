"""The one place that says no before anything is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.experiment.assembly import Assembly, assemble, run_of
from consort.experiment.recipe import Recipe
from consort.federation.federation import Federation
from consort.results.claims import Claim
from consort.results.known import AUDITED, known_values
from consort.results.values import TUNED, UNSEEN
from consort.run.run import Run
from consort.training.local import LocalTraining
from consort.training.scoring import score


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
    problem: UsageError | None = None
    for names in _known(recipe, assembly) if recipe.claims or recipe.published else ():
        try:
            for claim in recipe.claims:
                Claim.parse(claim, list(recipe.algorithms), sorted(names))
            for table in recipe.published:
                if table.metric not in names and not AUDITED.fullmatch(table.metric):
                    where = f"published numbers ({table.source})"
                    known = did_you_mean(table.metric, sorted(names))
                    raise UsageError(f"{where}: there is no metric {known}")
            return
        except UsageError as error:
            problem = error
    if problem:
        raise problem


def _known(recipe: Recipe, assembly: Assembly) -> Iterator[set[str]]:
    """The names that results will have: of metrics that stand for tasks, and then more and more.

    Which other metrics a task has is found by scoring initial models, one client after another,
    because some clients may lack the examples that a metric needs.
    """
    reports = {recipe.algorithm(name).reports for name in recipe.algorithms}
    tuned = recipe.run.tuning_epochs > 0 or TUNED in reports
    own = {about["metric"] for about in assembly.description["tasks"].values()}
    extras = {
        task: about["metric"] for e in assembly.federation.extras for task, about in e.tasks.items()
    }
    extra, others = set(extras.values()), set[str]()

    def known() -> set[str]:
        unseen = [(f"{UNSEEN}{name}", metric) for name in recipe.unseen for metric in extra]
        return known_values(own, others, tuned, unseen, recipe.compute.count_flops)

    yield known()
    for tasks in _scored(recipe, assembly.federation):
        extra |= {metric for task in extras for metric in tasks.get(task, ())}
        others |= {metric for metrics in tasks.values() for metric in metrics}
        yield known()


def _scored(recipe: Recipe, federation: Federation) -> Iterator[Mapping[str, Sequence[str]]]:
    """By task: the metrics of a client's initial model on its test data; for all clients."""
    prepared = {id(federation): federation}
    for name in recipe.algorithms:
        for protection in recipe.protections(name):
            with suppress(UsageError):  # refused where that algorithm is to run
                changed = protection.prepared(federation)
                prepared[id(changed)] = changed
    for client in federation.client_ids:
        for members in prepared.values():
            model, splits = members.blueprint(client).fresh(), members.data(client)
            scores = score(model, dict(members.members[client].tasks), splits)
            for extra in members.extras:
                scores = extra.added_to(scores, model, splits, client, last=False)
            tasks = scores.get("test", {"tasks": {}})["tasks"]
            yield {name: list(metrics) for name, metrics in tasks.items()}
