from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing.util import register_after_fork
from pathlib import Path

import pytest
import torch
from tests.helpers import assert_same, tiny_federation

from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Call, Each
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import Policed
from consort.engines.states import StateStore
from consort.engines.workers import Workers
from consort.errors import Failure


@dataclass(frozen=True)
class Probe(Algorithm[int]):
    """Client methods that tell where they run, and some that do not survive it."""

    @on_client
    def where(self, client):
        return {"id": client.id, "process": os.getpid(), "threads": torch.get_num_threads()}

    @on_client
    def echo(self, client, **payload):
        return {"id": client.id, **payload}

    @on_client
    def wait(self, client, seconds):
        time.sleep(seconds)
        return {"process": os.getpid()}

    @on_client
    def fail(self, client):
        if client.id == "c1":
            raise ZeroDivisionError("no examples")
        if client.id == "c2":
            raise Failure("there is nothing to learn here")
        return {}

    @on_client
    def recover(self, client, seconds, mark):
        """Client c1 fails the first time."""
        time.sleep(seconds)
        if client.id == "c1" and not Path(mark).exists():
            Path(mark).touch()
            raise OSError("try again")
        return {"id": client.id, "seconds": seconds}

    @on_client
    def unsendable(self, client):
        return {"value": {1, 2}}

    @on_client
    def die(self, client):
        if client.id == "c1":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"id": client.id}

    @on_client
    def leave(self, client):
        sys.exit(3)

    @on_client
    def count(self, client):
        client.state["calls"] = client.state.get("calls", 0) + 1
        return {"calls": client.state["calls"]}


@pytest.fixture
def host(tmp_path):
    return ClientHost(tiny_federation(6), Probe(), 0, 3, StateStore(tmp_path))


@pytest.fixture
def engine(host):
    """Two workers for six clients."""
    engine = Workers(host, 2)
    yield engine
    engine.close()


def calls(method, count=6, **payload):
    return [
        Call(
            f"c{number}",
            method,
            1,
            0,
            0,
            {k: v[f"c{number}"] if isinstance(v, Each) else v for k, v in payload.items()},
        )
        for number in range(count)
    ]


def contents(engine, method, count=6, **payload):
    replies = list(engine.deliver(calls(method, count, **payload)))
    assert [reply.client for reply in replies] == [f"c{number}" for number in range(count)]
    assert all(reply.error is None for reply in replies)
    return [reply.content for reply in replies]


def gone(process: int) -> bool:
    """Whether a process has ended (nobody may have asked for its exit code yet)."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


# Who answers


def test_clients_are_answered_by_two_other_processes_of_one_thread(engine):
    contents(engine, "wait", seconds=0.02)
    answers = contents(engine, "wait", seconds=0.02)
    assert len({answer["process"] for answer in answers}) == 2
    assert os.getpid() not in {answer["process"] for answer in answers}
    assert {answer["threads"] for answer in contents(engine, "where")} == {1}


def test_the_processes_are_the_same_in_every_round(engine):
    before = {worker.process.pid for worker in engine.workers}
    for _ in range(5):
        assert {answer["process"] for answer in contents(engine, "where")} <= before


def test_replies_come_in_the_order_of_the_calls_however_long_each_takes(engine):
    seconds = Each({f"c{number}": 0.06 - 0.01 * number for number in range(6)})
    contents(engine, "wait", seconds=seconds)
    backwards = calls("where")[::-1]
    assert [reply.content["id"] for reply in engine.deliver(backwards)] == [
        call.client for call in backwards
    ]


def test_a_slow_client_does_not_hold_the_others_up(engine):
    seconds = Each(dict.fromkeys((f"c{number}" for number in range(6)), 0.0) | {"c0": 0.5})
    start = time.perf_counter()
    answers = contents(engine, "wait", seconds=seconds)
    assert time.perf_counter() - start < 3
    assert len({answer["process"] for answer in answers[1:]}) == 1


def test_nobody_asked_means_nothing_answered(engine):
    assert list(engine.deliver([])) == []
    assert len(contents(engine, "where")) == 6


def test_one_worker_is_enough(tmp_path):
    engine = Workers(ClientHost(tiny_federation(3), Probe(), 0, 3, StateStore(tmp_path)), 1)
    assert [content["id"] for content in contents(engine, "where", 3)] == ["c0", "c1", "c2"]
    engine.close()


def test_client_memory_is_shared_through_the_disk(engine):
    assert contents(engine, "count") == [{"calls": 1}] * 6
    later = [Call(f"c{number}", "count", 2, 0, 0, {}) for number in (5, 4, 3, 2, 1, 0)]
    assert [reply.content for reply in engine.deliver(later)] == [{"calls": 2}] * 6


# What arrives


def test_shared_and_own_payloads_arrive_as_they_were_sent(engine):
    shared = {
        "scale": 0.1 + 0.2,
        "names": ["a", "ü"],
        "table": {1: torch.arange(6).view(2, 3), "empty": torch.zeros(0, 4)},
        "pair": (True, None),
        "half": torch.tensor([1.5], dtype=torch.float16),
    }
    own = Each({f"c{number}": {"value": torch.full((number,), number)} for number in range(6)})
    answers = contents(engine, "echo", own=own, **shared)
    for number, answer in enumerate(answers):
        expected = {"id": f"c{number}", "own": own[f"c{number}"], **shared}
        assert answer.keys() == expected.keys()
        assert_same({key: answer[key] for key in expected}, expected)


def test_parameters_travel_in_both_directions(engine):
    encoder = engine.host.federation.roster.shared()
    each = Each({f"c{number}": encoder * float(number) for number in range(6)})
    for number, answer in enumerate(contents(engine, "echo", model=encoder, own=each)):
        assert_same(answer["model"], encoder)
        assert_same(answer["own"], encoder * float(number))


def test_answers_stay_as_they_are_when_later_ones_come(engine):
    each = Each({f"c{number}": torch.full((1000,), float(number)) for number in range(6)})
    first = contents(engine, "echo", value=each)
    contents(engine, "echo", value=torch.full((1000,), 99.0))
    for number, answer in enumerate(first):
        assert answer["value"].unique().tolist() == [float(number)]


def test_a_new_broadcast_of_the_same_shape_is_seen_as_new(engine):
    for value in (1.0, 2.0, 3.0):
        answers = contents(engine, "echo", value=torch.full((50,), value))
        assert {answer["value"].sum().item() for answer in answers} == {50 * value}


def test_a_broadcast_is_checked_every_time(engine):
    """Also when it lies where the one before lay, which was good."""
    model = engine.host.federation.roster.shared()
    broken = model * float("nan")
    for each in (engine, Embedded(engine.host)):
        assert all(reply.error is None for reply in each.deliver(calls("echo", model=model)))
        replies = list(each.deliver(calls("echo", model=broken)))
        assert all("holds NaN or infinite values" in str(reply.error) for reply in replies)


def test_views_and_transposed_tensors_arrive_with_their_values(engine):
    base = torch.arange(24.0).view(4, 6)
    (answer,) = contents(engine, "echo", 1, turned=base.T, part=base[1:3, ::2])
    assert torch.equal(answer["turned"], base.T)
    assert torch.equal(answer["part"], base[1:3, ::2])


def test_ask_sends_each_client_its_own(engine):
    clients = Clients(("c0", "c3"), 1, 3, 0, engine, 6)
    replies = clients.ask(Probe().echo, value=Each({"c0": 1, "c3": 4}), common="both")
    assert replies["c0"] == {"id": "c0", "value": 1, "common": "both"}
    assert replies["c3"] == {"id": "c3", "value": 4, "common": "both"}


# What goes wrong


def test_errors_and_their_tracebacks_cross_the_process(engine):
    replies = list(engine.deliver(calls("fail")))
    assert [reply.error is None for reply in replies] == [True, False, False, True, True, True]
    failed, explained = replies[1].error, replies[2].error
    assert str(failed) == "client c1: ZeroDivisionError: no examples"
    assert 'raise ZeroDivisionError("no examples")' in failed.traceback
    assert str(explained) == "client c2: there is nothing to learn here"
    assert explained.traceback == ""


@pytest.mark.parametrize("method", ["fail", "unsendable", "nowhere"])
def test_errors_are_those_of_the_embedded_engine(engine, method):
    many = [reply.error for reply in engine.deliver(calls(method))]
    alone = [reply.error for reply in Embedded(engine.host).deliver(calls(method))]
    assert any(many)
    assert [str(error) for error in many] == [str(error) for error in alone]


def test_a_killed_worker_is_an_error_of_its_client_and_the_others_go_on(engine):
    before = {worker.process.pid for worker in engine.workers}
    replies = list(engine.deliver(calls("die")))
    assert [reply.client for reply in replies] == [f"c{number}" for number in range(6)]
    assert [reply.error is None for reply in replies] == [True, False, True, True, True, True]
    assert str(replies[1].error) == (
        "client c1: its worker process died (killed, or out of memory): use fewer --workers"
    )
    after = {worker.process.pid for worker in engine.workers}
    assert len(after) == 2
    assert len(after & before) == 1
    assert [answer["id"] for answer in contents(engine, "where")] == [f"c{n}" for n in range(6)]


def test_every_worker_may_die_in_every_round(engine):
    for _ in range(2):
        replies = list(engine.deliver(calls("leave", 4)))
        assert all("its worker process died" in str(reply.error) for reply in replies)
    answers = contents(engine, "wait", seconds=0.02)
    assert len({answer["process"] for answer in answers}) == 2


def test_an_engine_whose_replies_nobody_wanted_can_be_used_again(engine):
    for wanted in (0, 1, 3):
        replies = engine.deliver(calls("echo", value=torch.ones(10) * wanted))
        for _ in range(wanted):
            next(replies)
        replies.close()
        answers = contents(engine, "echo", value=torch.full((10,), 7.0))
        assert [answer["id"] for answer in answers] == [f"c{number}" for number in range(6)]
        assert {answer["value"].sum().item() for answer in answers} == {70.0}


def test_a_stream_that_is_left_early_does_no_harm(engine):
    clients = Clients(tuple(f"c{number}" for number in range(6)), 1, 3, 0, engine, 6)
    for client, _ in clients.stream(Probe().wait, seconds=0.02):
        if client == "c1":
            break
    assert list(clients.ask(Probe().where)) == list(clients.ids)


def test_a_client_that_kills_its_worker_in_an_abandoned_round_does_no_harm(engine):
    replies = engine.deliver(calls("die"))
    assert next(replies).client == "c0"
    replies.close()
    assert len(contents(engine, "where")) == 6


def test_a_payload_that_cannot_be_written_down_is_refused_before_anything_is_sent(engine):
    with pytest.raises(Failure, match="a set cannot be sent"):
        list(engine.deliver(calls("echo", value={1, 2})))
    assert len(contents(engine, "where")) == 6


def test_a_client_that_is_asked_again_gets_in_nobodys_way(engine, tmp_path):
    """Its second chance comes while the other worker may still be busy with somebody else."""
    told = []
    policed = Policed(engine, "retry", 2, told.append)
    seconds = Each({f"c{number}": 0.02 for number in range(6)} | {"c1": 0.06})
    mark = str(tmp_path / "mark")
    replies = list(policed.deliver(calls("recover", seconds=seconds, mark=mark)))
    assert [reply.content["id"] for reply in replies] == [f"c{number}" for number in range(6)]
    assert [reply.content["seconds"] for reply in replies] == list(seconds.values())
    assert told == []
    assert len(contents(engine, "where")) == 6


# The end


def test_closing_ends_the_processes(tmp_path):
    engine = Workers(ClientHost(tiny_federation(2), Probe(), 0, 3, StateStore(tmp_path)), 3)
    processes = [worker.process.pid for worker in engine.workers]
    assert not any(map(gone, processes))
    start = time.perf_counter()
    engine.close()
    assert time.perf_counter() - start < 4
    assert all(map(gone, processes))
    engine.close()


CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from tests.helpers import tiny_federation
from tests.unit.engines.test_workers import Probe, calls
from consort.engines.states import StateStore
from consort.engines.host import ClientHost
from consort.engines.workers import Workers

engine = Workers(ClientHost(tiny_federation(6), Probe(), 0, 3, StateStore()), 3)
def end(*_):
    print(*(worker.process.pid for worker in engine.workers), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

signal.signal(signal.SIGALRM, end)
signal.setitimer(signal.ITIMER_REAL, 0.5)
next(engine.deliver(calls("wait", seconds=600)))
"""


def test_the_processes_end_in_the_middle_of_a_call_when_their_parent_is_killed():
    root = Path(__file__).parents[3]
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(root)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    processes = list(map(int, child.stdout.split()))
    assert len(processes) == 3
    wait_until(lambda: all(map(gone, processes)))


def test_an_interrupt_is_left_to_the_parent(engine):
    """Ctrl-C reaches all processes of the terminal; the parent decides what it means."""
    for worker in engine.workers:
        os.kill(worker.process.pid, signal.SIGINT)
    assert len(contents(engine, "where")) == 6


def test_an_interrupt_while_a_worker_starts_is_left_to_the_parent(host):
    class Interruption:
        pass

    now = Interruption()  # what is registered for it is forgotten with it
    register_after_fork(now, lambda _: os.kill(os.getpid(), signal.SIGINT))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    engine = Workers(host, 2)
    del now
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    assert len(contents(engine, "where")) == 6
    engine.close()


def test_a_worker_that_was_killed_while_idle_does_not_end_the_run(engine):
    os.kill(engine.workers[0].process.pid, signal.SIGKILL)
    time.sleep(0.1)
    replies = list(engine.deliver(calls("where")))
    assert [reply.client for reply in replies] == [f"c{number}" for number in range(6)]
    assert sum(reply.error is None for reply in replies) >= 5
    assert len(contents(engine, "where")) == 6
