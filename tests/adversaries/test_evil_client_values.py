"""Answers of the right form with extreme values: a run bears them, and its results can be read."""

from __future__ import annotations

import math

import pytest

from consort.core.messages import Reply
from consort.core.packing import pack
from consort.engines.embedded import Embedded
from consort.engines.middleware import Absent, Wrapper
from consort.errors import Failure
from consort.experiment.loading import recipe_of
from consort.experiment.opening import open_run
from consort.experiment.preparation import prepare_run, resume_run
from consort.report.page import write_report
from consort.results.table import compare_table
from consort.run.observer import Observer
from consort.run.run import Run
from consort.run.schedule import Schedule
from tests.adversaries.evil_client import (
    EXTREME,
    FORGED,
    SCORES,
    TRAINING,
    Evil,
    metric,
    same,
    under,
)
from tests.adversaries.test_evil_client import FAMILIES
from tests.contract.helpers import every_algorithm, make
from tests.helpers import TWO_TASKS, tiny_federation


def kinds(state):
    """The names, shapes and types of all tensors in a server's state."""
    tensors = []
    skeleton = pack(state, tensors)
    return str(skeleton), [(tensor.shape, tensor.dtype) for tensor in tensors]


SPOILT = {"fedhca2_plus"}
"""With this client's values in the mean, the answers of all honest ones are refused: told so."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_bears_extreme_values(name):
    start = 3 * FAMILIES.index(name)
    clients = tiny_federation(3, tasks=TWO_TASKS)
    run = Run(
        clients,
        make(name, 3),
        Schedule(3, on_error="skip"),
        engine=lambda host: Evil(
            Embedded(host), tricks=EXTREME, scores={"honest": same}, start=start
        ),
    )
    if name in SPOILT:
        with pytest.raises(Failure, match="training has diverged, so lower the learning rate"):
            run.go()
        return
    run.go()
    assert {row.round for row in run.history} == {1, 2, 3}


@pytest.mark.parametrize("name", ["fedavg", "affr", "fedper", "fml", "mfed", "qfedavg", "scaffold"])
def test_extreme_values_do_not_change_the_form_of_the_global_state(name):
    clients = tiny_federation(3, tasks=TWO_TASKS)
    evil = {"tricks": EXTREME, "scores": {"honest": same}}
    states = []
    for engine in (lambda host: Evil(Embedded(host), **evil), lambda host: Embedded(host)):
        run = Run(clients, make(name, 3), Schedule(2, on_error="skip"), engine=engine)
        run.go()
        _, found = kinds(run.server)
        states.append(found)
    assert states[0] == states[1]


@every_algorithm
def test_a_run_goes_on_if_nobody_answers_any_more(name):
    class Deserted(Wrapper):
        def deliver(self, calls):
            for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
                gone = call.round > 1 and not call.evaluation
                yield Reply(call.client, error=Absent(call.client, "left")) if gone else reply

    clients = tiny_federation(3, tasks=TWO_TASKS)
    run = Run(clients, make(name, 3), Schedule(2), engine=lambda host: Deserted(Embedded(host)))
    run.go()
    assert max(row.round for row in run.history) == 2


# What is left behind

RECIPE = {
    "title": "with an evil client",
    "groups": [{"name": "c", "count": 3}],
    "data": {"name": "synthetic_vectors", "examples": 240},
    "model": {"name": "mlp", "hidden": [8]},
    "local": {"lr": 0.1},
}
ODD = {
    "NaN": metric(math.nan),
    "infinity": metric(math.inf),
    "minus infinity": metric(-math.inf),
    "huge": metric(1e308),
    "whole": metric(3),
    "parts": metric({"a": 0.5, "b": math.nan}),
    "another metric": metric(0.5, "my_metric"),
    "another model": under(0, "my model"),
    "another split": under(1, "my split"),
    "none": lambda _: {},
}


class Stopped(Observer):
    """Interrupts a run after some rounds."""

    def __init__(self, after):
        self.after = after

    def measured(self, round, rows):
        if round == self.after:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("scores", "name"), [(ODD, "fedavg"), (SCORES, "fedavg"), (ODD, "ifca")])
def test_a_folder_can_be_opened_resumed_and_reported(scores, name, tmp_path):
    rounds = len(scores)
    options = {"clusters": 2} if name == "ifca" else {}
    table = RECIPE | {"algorithms": {name: options}, "run": {"rounds": rounds}}
    recipe = recipe_of(table, "the test")
    run = prepare_run(recipe, name, 0, tmp_path / "run", observer=Stopped(rounds // 2))
    half = list(scores.items())
    evil = {"tricks": TRAINING, "client": "c-1"}
    run.engine = lambda host: Evil(Embedded(host), scores=dict(half[: rounds // 2]), **evil)
    with pytest.raises(KeyboardInterrupt):
        run.go()
    run = resume_run(tmp_path / "run")
    run.engine = lambda host: Evil(Embedded(host), scores=dict(half[rounds // 2 :]), **evil)
    run.go()
    opened = open_run(tmp_path / "run")
    assert FORGED not in (tmp_path / "run/history.jsonl").read_text()
    assert compare_table([opened.result])
    assert math.isfinite(opened.result.value("bytes"))
    report = write_report([opened.result], tmp_path / "report.html").read_text()
    assert name in report
