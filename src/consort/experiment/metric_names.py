"""Whether the metrics that claims and published numbers name will be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from consort.core.registry import did_you_mean
from consort.errors import UsageError
from consort.experiment.assembly import Assembly
from consort.experiment.recipe import Recipe
from consort.federation.federation import Federation
from consort.results.claims import Claim
from consort.results.gains import DELTA_M
from consort.results.table import AUDITED
from consort.results.values import TUNED, UNSEEN, named_values
from consort.training.scoring import score


def refuse_unknown_metrics(recipe: Recipe, assembly: Assembly) -> None:
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
    extras: dict[str, Any] = {}
    for evaluation in assembly.federation.extras:
        extras |= evaluation.tasks
    extra, metrics = {about["metric"] for about in extras.values()}, set(own)

    def known() -> set[str]:
        unseen = [(f"{UNSEEN}{name}", metric) for name in recipe.unseen for metric in extra]
        after = metrics if tuned else ()
        names = named_values(own, metrics, after, unseen, recipe.compute.count_flops)
        return {*names, DELTA_M}

    yield known()
    for tasks in _scored(recipe, assembly.federation):
        extra |= {metric for task in extras for metric in tasks.get(task, ())}
        metrics |= {metric for found in tasks.values() for metric in found}
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
