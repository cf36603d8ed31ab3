"""Finished runs with more rounds: bit for bit those of a longer run, or a reason why not."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from importlib import import_module

import pytest
from tests.helpers import assert_same, tiny_federation
from tests.unit.cli.command import RECIPE, TIMING, consort

from consort import Failure, Federation, LocalTraining, Run, Schedule, UsageError
from consort.algorithms.affr import AFFR
from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedkd import FedKD
from consort.algorithms.registry import algorithm_places, find_algorithm
from consort.algorithms.scaffold import Scaffold
from consort.run.cleaning import leftover
from consort.run.extension import reasons_against, uses_number_of_rounds
from consort.run.folder import read_description
from consort.run.history import History

LOCAL = LocalTraining(lr=0.1)
DITTO = Ditto(LOCAL)


def rows(folder):
    return [row for row in History(folder / "history.jsonl") if row.metric not in TIMING]


def go(folder, rounds, algorithm=DITTO, **schedule):
    run = Run(tiny_federation(3), algorithm, Schedule(rounds, **schedule), folder=folder)
    run.go()
    return run


@pytest.mark.parametrize("schedule", [
    {},
    {"evaluate_every": 3},  # round 4, the last of the short run, has no evaluation in the long one
    {"evaluate_every": 0},
    {"participation": 0.5, "dropout": 0.2},
])  # fmt: skip
@pytest.mark.parametrize("algorithm", [Ditto(LOCAL), Scaffold(LOCAL)])
def test_a_longer_run_is_what_it_would_have_been(tmp_path, algorithm, schedule):
    go(tmp_path / "a", 4, algorithm, **schedule)
    longer = go(tmp_path / "a", 7, algorithm, **schedule)
    straight = go(tmp_path / "b", 7, algorithm, **schedule)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    assert_same(longer.server, straight.server)


def test_twice_and_from_one_round(tmp_path):
    for rounds in (1, 2, 5):
        go(tmp_path / "a", rounds)
    go(tmp_path / "b", 5)
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_fewer_rounds_are_another_run(tmp_path):
    go(tmp_path, 3)
    before = rows(tmp_path)
    with pytest.raises(UsageError, match="holds a run of 3 rounds, and 2 are fewer"):
        go(tmp_path, 2)
    assert rows(tmp_path) == before


def test_a_cosine_depends_on_the_number_of_rounds(tmp_path):
    cosine = FedAvg(replace(LOCAL, schedule="cosine"))
    go(tmp_path, 2, cosine)
    before = rows(tmp_path)
    words = r'cannot be extended from 2 to 4 rounds, since local\.schedule = "cosine" depends'
    with pytest.raises(UsageError, match=words):
        go(tmp_path, 4, cosine)
    assert rows(tmp_path) == before
    go(tmp_path, 2, cosine)  # as before


def test_so_does_the_cosine_of_one_client():
    members = tiny_federation(2).members
    changed = {**members, "c1": replace(members["c1"], local={"schedule": "cosine"})}
    assert list(reasons_against(FedAvg(LOCAL), Federation(changed))) == [
        'the schedule "cosine" of c1 depends on the number of rounds'
    ]
    assert not list(reasons_against(FedAvg(LOCAL), tiny_federation(2)))


@dataclass(frozen=True)
class Annealed(FedAvg):
    """Looks at how many rounds there are."""

    def round(self, server, clients):
        return server if clients.round * 2 > clients.rounds else super().round(server, clients)


def test_algorithms_that_count_rounds_are_found():
    assert uses_number_of_rounds(Annealed)
    assert uses_number_of_rounds(FedKD)
    assert uses_number_of_rounds(AFFR)
    assert not uses_number_of_rounds(Scaffold)  # passes it to the schedule of local training only
    found = {name for name in algorithm_places() if uses_number_of_rounds(find_algorithm(name))}
    assert found == {"affr", "affr_plus", "feddg_ga", "fedfew_plus", "fedkd", "mfed_plus"}


def test_code_beside_the_algorithm_counts(tmp_path, monkeypatch):
    """Own code in several files: what a helper reads, the algorithm reads."""
    (tmp_path / "my_plan.py").write_text("def share(clients):\n    return 1 / clients.rounds\n")
    (tmp_path / "my_steps.py").write_text("import my_plan\nsteps = [my_plan.share]\n")
    text = "from consort.algorithms.fedavg import FedAvg\nclass {0}(FedAvg):\n    pass\n"
    (tmp_path / "my_own.py").write_text("import my_steps\n" + text.format("Own"))
    (tmp_path / "my_other.py").write_text(text.format("Other"))
    monkeypatch.syspath_prepend(tmp_path)
    assert uses_number_of_rounds(import_module("my_own").Own)
    assert not uses_number_of_rounds(import_module("my_other").Other)


def test_code_that_cannot_be_read_is_not_trusted():
    made = type("Made", (FedAvg,), {"__module__": "nowhere"})
    assert "nowhere" not in sys.modules
    assert uses_number_of_rounds(made)


def test_from_the_command(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    out, straight = tmp_path / "out", tmp_path / "straight"
    assert consort("compare", path, "--out", out, "--quiet").code == 0
    more = ["--set", "run.rounds=5", "--quiet"]
    assert consort("compare", path, "--out", out, *more).code == 0
    assert consort("compare", path, "--out", straight, *more).code == 0
    for name in ("fedavg", "ditto"):
        place = f"{name}/seed-0"
        assert rows(out / place) == rows(straight / place)
        assert leftover(out / place).unfinished is False
    shown = consort("compare", path, "--out", out, "--set", "run.rounds=3", "--quiet")
    assert (shown.code, "holds a run of 5 rounds, and 3 are fewer" in shown.error) == (2, True)
    cosine = ["--set", "local.schedule=cosine"]
    consort("run", path, "--out", tmp_path / "c", *cosine, "--quiet")
    shown = consort("run", path, "--out", tmp_path / "c", *cosine, *more)
    assert (shown.code, "since local.schedule" in shown.error) == (2, True)


def test_other_changes_are_named(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(RECIPE)
    consort("run", path, "--out", tmp_path / "out", "--quiet")
    shown = consort("run", path, "--out", tmp_path / "out", "--set", "local.lr=0.2", "--quiet")
    assert "another recipe (recipe.local.lr: 0.1, now 0.2): choose another --out" in shown.error


@pytest.mark.parametrize("name", ["round-000003.ckpt", "clients/states.jsonl"])
def test_what_the_repeated_round_begins_with_is_read_before_anything_is_deleted(tmp_path, name):
    go(tmp_path, 4, Scaffold(LOCAL))
    before, sound = rows(tmp_path), (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(sound[:40] + b"?" + sound[41:])
    with pytest.raises(Failure, match=f"{name} is damaged"):
        go(tmp_path, 6, Scaffold(LOCAL))
    assert rows(tmp_path) == before
    assert read_description(tmp_path)["rounds"] == 4
    assert (tmp_path / "round-000004.ckpt").exists()
    (tmp_path / name).write_bytes(sound)
    go(tmp_path, 6, Scaffold(LOCAL))
    go(tmp_path / "straight", 6, Scaffold(LOCAL))
    assert rows(tmp_path) == rows(tmp_path / "straight")


def test_without_the_checkpoint_before_the_last_a_run_is_not_begun_again(tmp_path):
    go(tmp_path, 3)
    before = rows(tmp_path)
    (tmp_path / "round-000002.ckpt").unlink()
    with pytest.raises(UsageError, match="since the checkpoint of round 2 is missing"):
        go(tmp_path, 4)
    assert rows(tmp_path) == before
    go(tmp_path, 3)


def test_an_unfinished_run_is_extended_without_repeating(tmp_path):
    go(tmp_path, 4)
    (tmp_path / "round-000004.ckpt").unlink()  # as after a crash in the last round
    go(tmp_path, 6)
    go(tmp_path / "straight", 6)
    assert rows(tmp_path) == rows(tmp_path / "straight")
