"""Whatever one client answers, the run goes on as if that client had been absent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from consort.core.messages import Call, Reply
from consort.engines.answers import Answers
from consort.engines.embedded import Embedded
from consort.engines.middleware import Absent, RefusedReply, Wrapper
from consort.errors import Refused
from consort.run.run import Run
from consort.run.schedule import Schedule
from tests.adversaries.evil_client import (
    BYTES,
    EVIL,
    ONLY_HERE,
    SCORES,
    TRAINING,
    Evil,
    EvilThroughBytes,
    score_of,
)
from tests.contract.helpers import Listener, every_algorithm, make, overhear
from tests.helpers import TWO_TASKS, assert_same, tiny_federation

ROUNDS = 3
FAMILIES = [
    "affr",
    "ditto",
    "fedavg",
    "fedavg_parts",
    "feddbe",
    "fedfew",
    "fedfew_plus",
    "fedgen",
    "fedgh",
    "fedhca2",
    "fedhca2_plus",
    "fedkd",
    "fedmgda",
    "fedmh_plus",
    "fedper",
    "fedtgp",
    "fml",
    "ifca",
    "local_everywhere",
    "mfed_plus",
    "own_or_common",
    "qfedavg",
    "scaffold",
]
"""Means, personal parts, prototypes, generators, several models, companions, gaps, …"""


class Gone(Wrapper):
    """An engine in which the evil client trains as it should, but its answers get lost."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
            lost = Absent(EVIL, "was too late")
            yield Reply(EVIL, error=lost) if call.client == EVIL else reply


def run_with(engine, name, rounds, folder=None, on_error="stop"):
    observer = Listener()
    clients = tiny_federation(3, tasks=TWO_TASKS)
    schedule = Schedule(rounds, on_error=on_error)
    run = Run(clients, make(name, 3), schedule, folder=folder, observer=observer, engine=engine)
    run.go()
    return run, observer.failures


def rows_of(run):
    """All rows but those about time and about what the evil client sent."""
    rows = [row for row in run.history if not re.search("seconds|memory", row.metric)]
    return [row for row in rows if row.metric != "bytes_up" or row.client != EVIL]


def test_there_are_many_tricks():
    assert len(TRAINING) + len(ONLY_HERE) >= 55
    assert len(SCORES) >= 35
    assert len(BYTES) >= 55


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_with_an_evil_client_is_a_run_without_it(name):
    evil = []

    def engine(host):
        evil.append(Evil(Embedded(host), start=ROUNDS * FAMILIES.index(name)))
        return evil[0]

    run, failures = run_with(engine, name, ROUNDS)
    calls = len(evil[0].played)
    assert [type(error) for error in failures] == [RefusedReply] * calls
    assert {error.client for error in failures} == {EVIL}
    plain, _ = run_with(lambda host: Gone(Embedded(host)), name, ROUNDS)
    assert_same(run.server, plain.server)
    assert rows_of(run) == rows_of(plain)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_through_bytes(name):
    evil = []

    def engine(host):
        answers = Answers.sent(host.federation, host.algorithm)
        start = ROUNDS * FAMILIES.index(name)
        evil.append(EvilThroughBytes(Embedded(host), limits=answers.limits, start=start))
        return evil[0]

    run, failures = run_with(engine, name, ROUNDS, on_error="skip")
    assert [type(error) for error in failures] == [RefusedReply] * len(evil[0].played)
    plain, _ = run_with(lambda host: Gone(Embedded(host)), name, ROUNDS)
    assert_same(run.server, plain.server)


def test_every_trick_is_played_against_fedavg(tmp_path):
    """As in the runs above, but until every trick has been played, and resumed in between."""
    rounds = max(len(TRAINING | BYTES), len(SCORES | BYTES))
    played = []

    def engine(host):
        answers = Answers.sent(host.federation, host.algorithm)
        return EvilThroughBytes(Embedded(host), limits=answers.limits, played=played)

    _, failures = run_with(engine, "fedavg", rounds, tmp_path)
    assert [type(error) for error in failures] == [RefusedReply] * 2 * rounds
    assert set(played) == TRAINING.keys() | SCORES.keys() | BYTES.keys()
    run, failures = run_with(lambda host: Embedded(host), "fedavg", rounds + 1, tmp_path)
    assert failures == []
    assert {row.client for row in run.history if row.split} == {"c0", "c1", "c2"}
    scored = [row.round for row in run.history if row.client == EVIL and row.split]
    assert set(scored) == {rounds, rounds + 1}  # the last round is repeated in a longer run


@every_algorithm
def test_every_algorithm_declares_enough_to_refuse_every_trick(name):
    algorithm = make(name, 3)
    clients = tiny_federation(3, tasks=TWO_TASKS)
    exchanges, _ = overhear(algorithm, clients)
    clients = clients.pooled() if algorithm.pools_data else clients
    table = algorithm.companion
    clients = clients if table is None else clients.accompanied(table)
    answers = Answers.sent(clients, algorithm)
    last = {exchange.call.method: exchange for exchange in exchanges}
    for method, exchange in last.items():
        tricks = SCORES if method == "test" else TRAINING | ONLY_HERE
        for trick in tricks.values():
            reply = Reply(exchange.call.client, trick(dict(exchange.reply.content)))
            with pytest.raises(Refused):
                answers.check(exchange.call, reply.content, reply.tensors)


def test_an_answer_in_the_name_of_another_is_refused():
    class Posing(Wrapper):
        def deliver(self, calls):
            for call, reply in zip(calls, self.engine.deliver(calls), strict=True):
                yield Reply("c0", reply.content) if call.client == EVIL else reply

    run, failures = run_with(lambda host: Posing(Embedded(host)), "fedavg", 2)
    assert {error.client for error in failures} == {EVIL}
    assert "somebody else" in str(failures[0])
    tested = [row.client for row in run.history if row.split and row.metric == "accuracy"]
    assert EVIL not in tested


def test_a_client_without_scores_is_left_out():
    empty = Evil(None, scores={"none": lambda _: {}}, tricks={"fine": lambda answer: answer})
    honest = Evil(None, scores={"no model": lambda c: {"global": {}}}, tricks=empty.tricks)
    for evil in (empty, honest):

        def engine(host, evil=evil):
            evil.engine = Embedded(host)
            return evil

        run, failures = run_with(engine, "local_everywhere", 2)
        assert failures == []
        assert {row.client for row in run.history if row.split} == {"c0", "c2"}


def test_the_scores_of_these_tests_are_found():
    exchanges, _ = overhear(make("fedavg"), tiny_federation(2))
    model, split, scores = score_of(exchanges[-1].reply.content)
    assert (model, split) == ("global", "validation")
    assert scores["n"] == 10
