"""Which values a run will have, found before it: a misspelt metric in a claim costs no training."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from consort.core.messages import Payload
from consort.data.examples import Examples, Splits
from consort.federation.federation import Federation
from consort.results.gains import DELTA_M
from consort.results.values import UNSEEN, named_values
from consort.tasks import Task
from consort.training.evaluation import EvaluationExtra
from consort.training.scoring import score

_FEW = 8  # examples of each split in the first attempt
_CLIENTS = 5  # that are tried for each task


@dataclass
class _Metrics:
    """Names of metrics, as far as they are known."""

    own: set[str] = field(default_factory=set)
    """Those that stand for tasks."""
    tested: set[str] = field(default_factory=set)
    unseen: set[tuple[str, str]] = field(default_factory=set)


def known_values(
    federation: Federation, also: Collection[str] = (), tuned: bool = True
) -> list[str]:
    """Finds out which names `Result.value` and claims will accept, without training.

    The names of metrics are known only once they have been computed. So the initial models are
    scored on a few examples of some clients, until the metric that stands for each task is there,
    and what is measured besides tasks is measured once.

    Args:
        federation: The clients with their data.
        also: Further metrics on test data, such as `attack_success`.
        tuned: Whether models are scored after local training, too.

    Returns:
        The names; none if the metrics of a task cannot be known before the run.
    """
    found = _Metrics(tested=set(also))
    known = _of_tasks(federation, found)
    if not known or not all(_of_extra(extra, federation, found) for extra in federation.extras):
        return []
    values = named_values(
        own=sorted(found.own),
        metrics=found.tested,
        tuned=found.tested if tuned else (),
        unseen=found.unseen,
        flops=federation.compute.count_flops,
    )
    return [*values, DELTA_M]


def _of_tasks(federation: Federation, found: _Metrics) -> bool:
    """Adds the metrics of all tasks; are they all known then?"""
    known: dict[Task, set[str]] = {}
    tried: dict[Task, int] = {}
    for client in federation.evaluation_ids:
        tasks = federation.members[client].tasks.values()
        unknown = [t for t in tasks if t not in known and tried.get(t, 0) < _CLIENTS]
        if unknown:
            tried |= {task: tried.get(task, 0) + 1 for task in unknown}
            known |= _of_client(federation, client)
    found.own |= {task.metric for task in tried}
    found.tested |= {name for names in known.values() for name in names}
    return tried.keys() <= known.keys()


def _of_client(federation: Federation, client: str) -> dict[Task, set[str]]:
    """The metrics of a client's tasks, where the one that stands for a task could be computed.

    Ever more examples are taken: the first few may all be of one class, or of one finger.
    """
    tasks, data = federation.members[client].tasks, federation.data(client)
    count, most = _FEW, max(len(data.validation), len(data.test))
    while True:
        model = federation.blueprint(client).fresh()
        scores = score(model, tasks, _first(data, count)).values()
        known = {
            task: {metric for split in scores for metric in split["tasks"][name]}
            for name, task in tasks.items()
            if scores and all(task.metric in split["tasks"][name] for split in scores)
        }
        if len(known) == len(tasks) or count >= most:
            return known
        count *= 4


def _of_extra(extra: EvaluationExtra, federation: Federation, found: _Metrics) -> bool:
    """Adds the metrics of what is measured besides tasks; are they known then?"""
    own = {str(about["metric"]) for about in extra.tasks.values()}
    found.own |= own
    for client in islice(federation.evaluation_ids, _CLIENTS):
        model, data = federation.blueprint(client).fresh(), federation.data(client)
        splits = {"validation": data.validation, "test": data.test}
        empty = {name: {"n": len(part), "tasks": {}} for name, part in splits.items() if len(part)}
        names = list(_names(extra.added_to(empty, model, data, client, True)))
        found.tested |= {metric for split, metric in names if split == "test"}
        found.unseen |= {(split, metric) for split, metric in names if split.startswith(UNSEEN)}
        if own <= {metric for split, metric in names if split == "test"}:
            return True
    return False


def _names(scores: Payload) -> Iterator[tuple[str, str]]:
    """Splits and metrics, without those that are curves."""
    for split, scored in scores.items():
        for metrics in scored["tasks"].values():
            for metric, value in metrics.items():
                if not isinstance(value, Mapping):
                    yield split, metric


def _first(data: Splits, count: int) -> Splits:
    def part(examples: Examples) -> Examples:
        return examples.rows(0, min(count, len(examples)))

    return data.map(part)
