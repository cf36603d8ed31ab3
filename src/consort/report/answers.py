"""What trained models answer for a few test images, computed when the report is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from consort.data.examples import Examples, Splits
from consort.errors import ConsortError, Failure
from consort.report.looks import LOOKS
from consort.report.numbers import natural
from consort.report.study import Study
from consort.results.gains import ALONE
from consort.results.result import Result
from consort.tasks import Task

if TYPE_CHECKING:
    from consort.federation.member import Member
    from consort.run.run import Run

IMAGES = 3
"""Test images of a client that are shown."""
CLIENTS = 8
"""Clients that are shown, one of each group."""


@dataclass(frozen=True)
class Answered:
    """A few test images of a client, and what the reported model of one run makes of them."""

    test: Examples
    tasks: Mapping[str, Task]
    outputs: Mapping[str, Tensor]


@dataclass(frozen=True)
class Answers:
    """By client, what each algorithm answers; by algorithm, why it does not."""

    found: Mapping[str, Mapping[str, Answered]]
    missing: Mapping[str, str]


def pictured(run: Result, client: str) -> list[str]:
    """The tasks of a client whose answers can be drawn."""
    tasks = run.clients[client]["tasks"]
    return [task for task in tasks if run.tasks[task].get("kind") in LOOKS]


def subjects(run: Result) -> list[str]:
    """Clients with such a task, the first of each group."""
    first: dict[str, str] = {}
    for client in sorted(run.clients, key=natural):
        if pictured(run, client) and run.clients[client]["test"]:
            first.setdefault(str(run.clients[client]["group"]), client)
    return list(first.values())[:CLIENTS]


def alike(study: Study) -> dict[str, Result]:
    """Of every algorithm the run with the test images of the first run; training alone leads."""
    wanted = study.first.about["partition"], study.first.seed
    found = {
        algorithm: run
        for algorithm, runs in study.groups.items()
        for run in runs
        if (run.about["partition"], run.seed) == wanted
    }
    return dict(sorted(found.items(), key=lambda item: item[1].about.get("kind") != ALONE))


def answers(study: Study) -> Answers:
    """Loads the last checkpoints and asks the models in them."""
    clients = subjects(study.first)
    found: dict[str, dict[str, Answered]] = {client: {} for client in clients}
    missing: dict[str, str] = {}
    for algorithm, run in alike(study).items() if clients else ():
        try:
            for client, answered in _answered(run, clients):
                found[client][algorithm] = answered
        except (ConsortError, OSError) as error:
            missing[algorithm] = str(error)
    return Answers(found, missing)


def _answered(result: Result, clients: Sequence[str]) -> Iterator[tuple[str, Answered]]:
    from consort.experiment.opening import open_run
    from consort.use.trained import reported_model

    if result.about.get("engine") == "flower":
        raise Failure(f"{result.folder}: the test images stay with the clients")
    run = open_run(result.folder).run
    _spare(run)
    for client in clients:
        trained = reported_model(run, client)
        if trained is None:
            raise Failure(f"{result.folder}: there is no checkpoint any more")
        test, tasks = run.federation.data(client).test, run.federation.members[client].tasks
        with torch.inference_mode():
            yield client, Answered(test, tasks, trained.model.eval()(test.inputs, tasks))


def _spare(run: Run) -> None:
    """Leaves the clients only the test images that are shown: just the models are wanted."""
    whole = run.federation
    members = {
        client: replace(member, load=partial(_with_few, member))
        for client, member in whole.members.items()
    }
    run.federation = replace(whole, members=members)


def _with_few(member: Member) -> Splits:
    splits = member.load()
    return replace(splits, test=splits.test.take(_telling(member, splits.test)))


def _telling(member: Member, test: Examples) -> Tensor:
    """Where the first images are for which most of the tasks have an answer."""
    labelled = torch.zeros(len(test))
    for name, task in member.tasks.items():
        look = LOOKS.get(type(task).__name__)
        if look:
            labelled += look.known(test.targets[name]).flatten(1).any(1)
    return labelled.argsort(descending=True, stable=True)[:IMAGES].sort().values
