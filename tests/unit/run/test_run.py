"""Rounds: who takes part, what is measured, what is kept, and what an error does."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
from tests.helpers import assert_same, tiny_federation

from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg, Server
from consort.algorithms.fedper import FedPer
from consort.algorithms.scaffold import Scaffold
from consort.core import files
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Call, Payload, Replies
from consort.core.params import Params
from consort.core.roster import Roster
from consort.core.row import Row
from consort.errors import ClientFailed
from consort.federation.participation import cohort, happens
from consort.run.history import History
from consort.run.observer import Observer
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.client import Client
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.1, batch=8)
CLOCK = ("seconds", "evaluation_seconds", "peak_memory_mib")
ENCODER_BYTES = 4 * (8 * 16 + 16)
HEAD_BYTES = 4 * (16 * 3 + 3)


@dataclass(frozen=True)
class Tally:
    """Who answered in each round."""

    answered: list[list[str]]


@dataclass(frozen=True)
class RollCall(Algorithm[Tally]):
    """Notes who answers; nobody learns anything."""

    def start(self, roster: Roster) -> Tally:
        return Tally([])

    def round(self, server: Tally, clients: Clients) -> Tally:
        return Tally([*server.answered, list(clients.ask(self.present))])

    @on_client
    def present(self, client: Client) -> Payload:
        return {}

    def evaluate(self, server: Tally, clients: Clients) -> Replies:
        return clients.ask(self.test)

    @on_client
    def test(self, client: Client) -> Payload:
        return {"global": client.score()}


@dataclass(frozen=True)
class Stumbling(FedAvg):
    """FedAvg in which a client raises an error in a round, so many times."""

    client: str = "c1"
    stumbles_in: int = 2
    times: int = 10**6
    attempts: Counter[tuple[str, int]] = field(default_factory=Counter, compare=False)

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        here = client.id, client.round
        self.attempts[here] += 1
        if here == (self.client, self.stumbles_in) and self.attempts[here] <= self.times:
            raise ValueError("the disk is full")
        return super().train(client, model)


@dataclass(frozen=True)
class Overflowing(FedAvg):
    """FedAvg in which a client answers with infinite weights."""

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        answer = super().train(client, model)
        if client.id == "c1":
            answer["model"] = answer["model"] * math.inf
        return answer


class Notebook(Observer):
    """Writes down everything it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, object]] = []
        self.failures: list[ClientFailed] = []

    def round_started(self, round: int, calls: int) -> None:
        self.lines.append(("round", (round, calls)))

    def answered(self, call: Call) -> None:
        self.lines.append(("answered", (call.client, call.method, call.evaluation)))

    def evaluated(self, round: int, replies: Replies) -> None:
        self.lines.append(("evaluated", (round, list(replies))))

    def failed(self, error: ClientFailed) -> None:
        self.lines.append(("failed", error.client))
        self.failures.append(error)


def scores(history: History) -> list[Row]:
    return [row for row in history if row.split]


def without_clock(history: History) -> list[Row]:
    return [row for row in history if row.metric not in CLOCK]


def sums(history: History, metric: str) -> dict[tuple[int, str, str], float]:
    return {(r.round, r.client, r.part): r.value for r in history if r.metric == metric}


@pytest.mark.parametrize(("every", "expected"), [
    (1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (7, [5]), (0, [5]),
])  # fmt: skip
def test_every_so_many_rounds_are_evaluated_and_the_last_always(every, expected):
    schedule = Schedule(rounds=5, evaluate_every=every)
    history = Run(tiny_federation(2), RollCall(), schedule).go()
    assert sorted({row.round for row in scores(history)}) == expected
    assert sorted({row.round for row in history if row.metric == "seconds"}) == [1, 2, 3, 4, 5]


def test_every_client_split_task_and_metric_is_a_row():
    history = Run(tiny_federation(2), Ditto(LOCAL), Schedule(rounds=1)).go()
    found = {(r.client, r.model, r.split, r.task, r.metric, r.n) for r in scores(history)}
    assert found == {
        (client, model, split, "classify", metric, 10)
        for client in ("c0", "c1")
        for model in ("global", "personal")
        for split in ("validation", "test")
        for metric in ("accuracy", "balanced_accuracy", "loss")
    }


@pytest.mark.parametrize(("share", "count"), [(1.0, 5), (0.5, 3), (0.3, 2), (0.01, 1)])
def test_a_share_of_the_clients_takes_part_and_all_are_evaluated(share, count):
    run = Run(tiny_federation(5), RollCall(), Schedule(rounds=6, participation=share), seed=3)
    history = run.go()
    expected = [list(cohort(run.federation.client_ids, share, 3, r)) for r in range(1, 7)]
    assert run.server.answered == expected
    assert {len(ids) for ids in run.server.answered} == {count}
    for round_ in range(1, 7):
        assert len({row.client for row in scores(history) if row.round == round_}) == 5


def test_other_seeds_choose_other_clients():
    schedule = Schedule(rounds=6, participation=0.5)
    one, two = (Run(tiny_federation(5), RollCall(), schedule, seed=seed) for seed in (0, 1))
    one.go(), two.go()
    assert one.server.answered != two.server.answered


def test_lost_clients_are_those_that_the_seed_loses():
    notebook = Notebook()
    schedule = Schedule(rounds=8, dropout=0.4)
    run = Run(tiny_federation(4), RollCall(), schedule, seed=5, observer=notebook)
    history = run.go()
    ids = run.federation.client_ids
    expected = [[c for c in ids if not happens(0.4, 5, r, c, "dropout")] for r in range(1, 9)]
    assert run.server.answered == expected
    lost = 8 * 4 - sum(map(len, expected))
    assert 0 < lost < 8 * 4
    assert len(notebook.failures) == lost
    worked = {(r.round, r.client) for r in history if r.metric == "seconds" and r.client}
    assert worked == {(r, c) for r, present in enumerate(expected, 1) for c in present}


def test_stragglers_work_in_vain():
    schedule = Schedule(rounds=8, stragglers=0.4)
    run = Run(tiny_federation(4), RollCall(), schedule, seed=5)
    history = run.go()
    late = {(r, c) for r in range(1, 9) for c in run.federation.client_ids
            if happens(0.4, 5, r, c, "straggler")}  # fmt: skip
    assert late
    everybody = {(r, c) for r in range(1, 9) for c in run.federation.client_ids}
    answered = {(r, c) for r, ids in enumerate(run.server.answered, 1) for c in ids}
    assert answered == everybody - late
    assert {(r.round, r.client) for r in history if r.metric == "seconds" and r.client} == everybody


def test_the_round_goes_on_with_those_who_answer():
    """Losing c1 in the only round gives the mean of the others' models."""
    seed = next(s for s in range(99) if lost_in_round_one(s) == ["c1"])
    schedule = Schedule(rounds=1, dropout=0.3)
    run = Run(tiny_federation(3), FedAvg(LOCAL), schedule, seed=seed)
    run.go()
    skipping = Run(
        tiny_federation(3), Stumbling(LOCAL, stumbles_in=1), Schedule(1, on_error="skip"), seed=seed
    )
    skipping.go()
    assert_same(run.server.model, skipping.server.model)


def lost_in_round_one(seed: int) -> list[str]:
    return [client for client in ("c0", "c1", "c2") if happens(0.3, seed, 1, client, "dropout")]


@pytest.mark.parametrize("algorithm", [FedAvg(LOCAL), Ditto(LOCAL), Scaffold(LOCAL), FedPer(LOCAL)])
def test_a_round_in_which_everybody_is_lost_changes_nothing(algorithm):
    notebook = Notebook()
    run = Run(tiny_federation(2), algorithm, Schedule(rounds=2, dropout=1.0), observer=notebook)
    history = run.go()
    assert_same(run.server, algorithm.start(run.federation.roster))
    assert sorted({row.round for row in scores(history)}) == [1, 2]
    told = [str(error) for error in notebook.failures]
    assert sum("round 1 is skipped" in line for line in told) == 1
    assert sum("round 2 is skipped" in line for line in told) == 1


def test_an_error_stops_the_run_and_names_the_client(tmp_path: Path):
    run = Run(tiny_federation(3), Stumbling(LOCAL), Schedule(rounds=4), folder=tmp_path)
    with pytest.raises(ClientFailed, match="client c1: ValueError: the disk is full") as caught:
        run.go()
    assert 'raise ValueError("the disk is full")' in caught.value.traceback
    assert [path.name for path in tmp_path.glob("*.ckpt")] == ["round-000001.ckpt"]
    assert sorted({row.round for row in scores(run.history)}) == [1]


def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_happened(tmp_path: Path):
    straight = Run(tiny_federation(3), FedAvg(LOCAL), Schedule(rounds=4), folder=tmp_path / "a")
    straight.go()
    stumbling = Stumbling(LOCAL, stumbles_in=3, times=1)
    with pytest.raises(ClientFailed):
        Run(tiny_federation(3), stumbling, Schedule(rounds=4), folder=tmp_path / "b").go()
    second = Run(tiny_federation(3), stumbling, Schedule(rounds=4), folder=tmp_path / "b")
    second.go()
    assert_same(second.server, straight.server)
    assert without_clock(second.history) == without_clock(straight.history)


def test_a_failing_client_can_be_skipped():
    notebook = Notebook()
    schedule = Schedule(rounds=3, on_error="skip")
    run = Run(tiny_federation(3), Stumbling(LOCAL), schedule, observer=notebook)
    history = run.go()
    assert [(error.client, error.reason) for error in notebook.failures] == [
        ("c1", "ValueError: the disk is full")
    ]
    up = sums(history, "bytes_up")
    assert (2, "c1", "encoder") not in up
    assert (1, "c1", "encoder") in up
    assert (3, "c1", "encoder") in up


@pytest.mark.parametrize("workers", [1, 2])
def test_a_passing_error_is_retried_without_a_trace_in_the_numbers(workers):
    plain = Run(tiny_federation(3), FedAvg(LOCAL), Schedule(rounds=3))
    plain.go()
    schedule = Schedule(rounds=3, on_error="retry", retries=9)
    run = Run(tiny_federation(3), Stumbling(LOCAL, times=2), schedule, workers=workers)
    run.go()
    assert_same(run.server, plain.server)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_lasting_error_is_retried_so_often_and_then_stops_the_run(retries):
    algorithm = Stumbling(LOCAL, stumbles_in=1)
    schedule = Schedule(rounds=2, on_error="retry", retries=retries)
    with pytest.raises(ClientFailed, match="the disk is full"):
        Run(tiny_federation(2), algorithm, schedule).go()
    assert algorithm.attempts["c1", 1] == 1 + retries


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_an_answer_that_is_not_finite_is_refused_and_the_round_goes_on(on_error):
    notebook = Notebook()
    schedule = Schedule(rounds=1, on_error=on_error)
    run = Run(tiny_federation(3), Overflowing(LOCAL), schedule, observer=notebook)
    run.go()
    without = Run(tiny_federation(3), Stumbling(LOCAL, stumbles_in=1), Schedule(1, on_error="skip"))
    without.go()
    assert_same(run.server.model, without.server.model)
    (error,) = notebook.failures
    assert error.client == "c1"
    assert "NaN or infinite" in error.reason


def test_bytes_are_those_of_the_tensors_by_role():
    history = Run(tiny_federation(2), FedAvg(LOCAL), Schedule(rounds=2)).go()
    expected = {
        (round_, client, role): size
        for round_ in (1, 2)
        for client in ("c0", "c1")
        for role, size in (("encoder", ENCODER_BYTES), ("heads", HEAD_BYTES))
    }
    assert sums(history, "bytes_up") == expected
    assert sums(history, "bytes_down") == expected


def test_what_stays_at_home_is_not_counted():
    history = Run(tiny_federation(2), FedPer(LOCAL), Schedule(rounds=1)).go()
    for metric in ("bytes_up", "bytes_down"):
        assert sums(history, metric) == {
            (1, "c0", "encoder"): ENCODER_BYTES,
            (1, "c1", "encoder"): ENCODER_BYTES,
        }


def test_scaffold_sends_twice_as_much():
    history = Run(tiny_federation(1), Scaffold(LOCAL), Schedule(rounds=1)).go()
    expected = {(1, "c0", "encoder"): 2 * ENCODER_BYTES, (1, "c0", "heads"): 2 * HEAD_BYTES}
    assert sums(history, "bytes_up") == sums(history, "bytes_down") == expected


def test_seconds_are_measured_for_rounds_evaluations_and_calls():
    history = Run(tiny_federation(2), FedAvg(LOCAL), Schedule(rounds=2, evaluate_every=2)).go()
    seconds = sums(history, "seconds")
    assert set(seconds) == {(r, c, part) for r in (1, 2) for c, part in
                            (("", ""), ("c0", "train"), ("c1", "train"))}  # fmt: skip
    assert all(value > 0 for value in seconds.values())
    for round_ in (1, 2):
        calls = seconds[round_, "c0", "train"] + seconds[round_, "c1", "train"]
        assert calls < seconds[round_, "", ""]
    assert set(sums(history, "evaluation_seconds")) == {(2, "", "")}
    memory = sums(history, "peak_memory_mib")
    assert set(memory) == {(1, "", ""), (2, "", "")}
    assert 10 < memory[1, "", ""] <= memory[2, "", ""]


def test_the_last_two_checkpoints_are_kept(tmp_path: Path):
    run = Run(tiny_federation(2), FedAvg(LOCAL), Schedule(rounds=5), folder=tmp_path)
    run.go()
    kept = sorted(tmp_path.glob("*.ckpt"))
    assert [path.name for path in kept] == ["round-000004.ckpt", "round-000005.ckpt"]
    before, last = (files.load(path, {"Server": Server}) for path in kept)
    assert (before["round"], last["round"]) == (4, 5)
    assert before["history"] < last["history"] == (tmp_path / "history.jsonl").stat().st_size
    assert_same(last["server"], run.server)
    straight = Run(tiny_federation(2), FedAvg(LOCAL), Schedule(rounds=4))
    straight.go()
    assert_same(before["server"], straight.server)


def test_a_finished_run_does_nothing_more(tmp_path: Path):
    first = Run(tiny_federation(2), Ditto(LOCAL), Schedule(rounds=2), folder=tmp_path)
    first.go()
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    notebook = Notebook()
    again = replace(first, observer=notebook)
    again.go()
    assert notebook.lines == []
    assert_same(again.server, first.server)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == files


def test_a_longer_schedule_goes_on_from_a_finished_run(tmp_path: Path):
    Run(tiny_federation(2), Ditto(LOCAL), Schedule(rounds=2), folder=tmp_path).go()
    longer = Run(tiny_federation(2), Ditto(LOCAL), Schedule(rounds=4), folder=tmp_path)
    longer.go()
    straight = Run(tiny_federation(2), Ditto(LOCAL), Schedule(rounds=4))
    straight.go()
    assert_same(longer.server, straight.server)
    assert without_clock(longer.history) == without_clock(straight.history)


@pytest.mark.parametrize("algorithm", [Ditto(LOCAL), Scaffold(LOCAL)])
def test_memory_folder_and_workers_give_the_same_numbers(algorithm, tmp_path: Path):
    schedule = Schedule(rounds=3, participation=0.7, dropout=0.2)
    runs = [
        Run(tiny_federation(4), algorithm, schedule, folder=folder, workers=workers)
        for folder, workers in ((None, 1), (tmp_path, 1), (None, 2))
    ]
    expected = without_clock(runs[0].go())
    for run in runs[1:]:
        assert without_clock(run.go()) == expected
        assert_same(run.server, runs[0].server)


def test_the_watcher_hears_everything_in_order():
    notebook = Notebook()
    Run(tiny_federation(2), FedAvg(LOCAL), Schedule(rounds=2), observer=notebook).go()
    round_ = [
        ("answered", ("c0", "train", False)),
        ("answered", ("c1", "train", False)),
        ("answered", ("c0", "test", True)),
        ("answered", ("c1", "test", True)),
    ]
    both = ["c0", "c1"]
    assert notebook.lines == [
        ("round", (1, 2)), *round_, ("evaluated", (1, both)),
        ("round", (2, 2)), *round_, ("evaluated", (2, both)),
    ]  # fmt: skip


def test_the_best_model_of_a_learnable_task_is_learnt():
    history = Run(tiny_federation(3), FedAvg(LocalTraining(lr=0.3, batch=8)), Schedule(15)).go()
    losses = [
        sum(row.value for row in scores(history) if (row.round, row.metric) == (round_, "loss"))
        for round_ in (1, 15)
    ]
    assert losses[1] < 0.7 * losses[0]


def test_evaluation_leaves_no_trace_in_training():
    often, rarely = (
        Run(tiny_federation(2), Ditto(LOCAL), Schedule(rounds=3, evaluate_every=every))
        for every in (1, 0)
    )
    often.go(), rarely.go()
    assert_same(often.server, rarely.server)
    last = [row for row in scores(often.history) if row.round == 3]
    assert last == scores(rarely.history)


def test_the_settings_of_the_arithmetic_are_applied():
    federation = tiny_federation(1)
    torch.set_num_threads(2)
    Run(federation, RollCall(), Schedule(rounds=1)).go()
    assert torch.get_num_threads() == federation.compute.threads == 1


def test_a_run_in_memory_that_was_cut_off_starts_again():
    class Once(Observer):
        cut = False

        def round_started(self, round, calls):
            if round == 3 and not self.cut:
                self.cut = True
                raise KeyboardInterrupt

    run = Run(tiny_federation(2), FedPer(LOCAL), Schedule(4), observer=Once())
    with pytest.raises(KeyboardInterrupt):
        run.go()
    straight = Run(tiny_federation(2), FedPer(LOCAL), Schedule(4))
    losses = [r for r in straight.go() if r.metric == "loss"]
    assert [r for r in run.go() if r.metric == "loss"] == losses
    assert_same(run.server, straight.server)
    assert [r for r in run.go() if r.metric == "loss"] == losses
