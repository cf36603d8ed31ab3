"""Clients whose data cannot be read when a run starts: they are named, and the run starts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from tests.helpers import tiny_federation

from consort import Federation, LocalTraining, Run, Schedule, UsageError
from consort.algorithms.fedavg import FedAvg
from consort.errors import ClientFailed
from consort.report.page import write_report
from consort.results.result import Result
from consort.run.folder import read_description
from consort.run.observer import Observer

LOCAL = LocalTraining(lr=0.1)


@dataclass
class Notebook(Observer):
    """Keeps what it is told."""

    failures: list[ClientFailed] = field(default_factory=list)

    def failed(self, error: ClientFailed) -> None:
        self.failures.append(error)


def without_data():
    raise OSError(5, "Input/output\nerror")


def federation(*broken, clients=3):
    members = tiny_federation(clients).members
    changed = {c: replace(members[c], load=without_data) for c in broken}
    return Federation(members | changed)


def run(folder, clients, rounds=2, notebook=None):
    schedule = Schedule(rounds, on_error="skip")
    return Run(clients, FedAvg(LOCAL), schedule, folder=folder, observer=notebook or Observer())


def test_they_are_named_with_the_reason(tmp_path):
    notebook = Notebook()
    run(tmp_path, federation("c1"), notebook=notebook).go()
    assert str(notebook.failures[0]) == (
        "client c1: its data cannot be read (OSError: [Errno 5] Input/output error)"
    )
    about = read_description(tmp_path)["clients"]
    assert about["c1"]["unread"] == "OSError: [Errno 5] Input/output error"
    assert (about["c1"]["train"], about["c1"]["tasks"]) == (0, ["classify"])
    assert "unread" not in about["c0"]
    assert set(about) == {"c0", "c1", "c2"}
    result = Result.load(tmp_path)
    assert result.rounds_done == 2
    assert write_report([result], tmp_path / "page.html").exists()


def test_data_that_can_be_read_again_are_those_of_the_run(tmp_path):
    run(tmp_path, federation("c1"), 1).go()
    run(tmp_path, federation(), 2).go()
    about = read_description(tmp_path)["clients"]
    assert (about["c1"]["train"], "unread" in about["c1"]) == (31, False)
    run(tmp_path, federation("c0"), 3).go()
    assert read_description(tmp_path)["clients"]["c0"]["train"] == 30
    run(tmp_path, federation(), 4).go()
    assert Result.load(tmp_path).rounds_done == 4


def test_other_data_are_still_another_run(tmp_path):
    run(tmp_path, federation("c1"), 1).go()
    others = tiny_federation(3).members
    swapped = Federation({"c0": others["c2"], "c1": others["c1"], "c2": others["c0"]})
    with pytest.raises(UsageError, match="holds a run with another partition"):
        run(tmp_path, swapped, 1).go()
    with pytest.raises(UsageError, match="holds a run with another partition"):
        run(tmp_path, federation("c1", clients=4), 1).go()
