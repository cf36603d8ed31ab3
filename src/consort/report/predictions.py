"""Predictions of trained models for a few test images, computed when the report is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from consort.data.examples import Examples, Splits
from consort.errors import ConsortError, Failure
from consort.report.numbers import natural
from consort.report.rendering import RENDERERS
from consort.report.run_set import RunSet
from consort.results.gains import ALONE
from consort.results.result import Result
from consort.tasks import Task

if TYPE_CHECKING:
    from consort.federation.member import Member
    from consort.run.run import Run

IMAGES = 3
"""The number of test images shown per client."""
CLIENTS = 8
"""The largest number of clients shown, one of each group."""


@dataclass(frozen=True)
class ClientPredictions:
    """A few test images of a client, and the outputs of the reported model of one run."""

    test: Examples
    tasks: Mapping[str, Task]
    outputs: Mapping[str, Tensor]


@dataclass(frozen=True)
class Predictions:
    """Predictions by client and algorithm; for other algorithms, why there are none."""

    found: Mapping[str, Mapping[str, ClientPredictions]]
    missing: Mapping[str, str]


def drawable_tasks(run: Result, client: str) -> list[str]:
    """The tasks of a client whose predictions can be drawn as images."""
    tasks = run.clients[client]["tasks"]
    return [task for task in tasks if run.tasks[task].get("kind") in RENDERERS]


def shown_clients(run: Result) -> list[str]:
    """Clients with such a task, the first of each group."""
    first: dict[str, str] = {}
    for client in sorted(run.clients, key=natural):
        if drawable_tasks(run, client) and run.clients[client]["test"]:
            first.setdefault(str(run.clients[client]["group"]), client)
    return list(first.values())[:CLIENTS]


def comparable_runs(run_set: RunSet) -> dict[str, Result]:
    """For every algorithm, the run with the same test images as the first run.

    Local training comes first.
    """
    wanted = run_set.first.about["partition"], run_set.first.seed
    found = {
        algorithm: run
        for algorithm, runs in run_set.groups.items()
        for run in runs
        if (run.about["partition"], run.seed) == wanted
    }
    return dict(sorted(found.items(), key=lambda item: item[1].about.get("kind") != ALONE))


def predictions(run_set: RunSet) -> Predictions:
    """Loads the last checkpoint of each algorithm and applies its models to test images."""
    clients = shown_clients(run_set.first)
    found: dict[str, dict[str, ClientPredictions]] = {client: {} for client in clients}
    missing: dict[str, str] = {}
    for algorithm, run in comparable_runs(run_set).items() if clients else ():
        try:
            for client, predicted in _predictions_of(run, clients):
                found[client][algorithm] = predicted
        except (ConsortError, OSError) as error:
            missing[algorithm] = str(error)
    return Predictions(found, missing)


def _predictions_of(
    result: Result, clients: Sequence[str]
) -> Iterator[tuple[str, ClientPredictions]]:
    from consort.experiment.opening import open_run
    from consort.experiment.trained import reported_model

    if result.about.get("engine") == "flower":
        raise Failure(f"{result.folder}: the test images stay with the clients")
    run = open_run(result.folder).run
    _keep_shown_images(run)
    for client in clients:
        trained = reported_model(run, client)
        if trained is None:
            raise Failure(f"{result.folder}: its checkpoint is gone")
        test, tasks = run.federation.data(client).test, run.federation.members[client].tasks
        with torch.inference_mode():
            yield client, ClientPredictions(test, tasks, trained.model.eval()(test.inputs, tasks))


def _keep_shown_images(run: Run) -> None:
    """Reduces the clients' test data to the images that are shown; only the models are needed."""
    whole = run.federation
    members = {
        client: replace(member, load=partial(_with_shown_images, member))
        for client, member in whole.members.items()
    }
    run.federation = replace(whole, members=members)


def _with_shown_images(member: Member) -> Splits:
    splits = member.load()
    return replace(splits, test=splits.test.take(_most_labelled(member, splits.test)))


def _most_labelled(member: Member, test: Examples) -> Tensor:
    """The indices of the first images for which most tasks have labels."""
    labelled = torch.zeros(len(test))
    for name, task in member.tasks.items():
        renderer = RENDERERS.get(type(task).__name__)
        if renderer:
            labelled += renderer.known(test.targets[name]).flatten(1).any(1)
    return labelled.argsort(descending=True, stable=True)[:IMAGES].sort().values
