from __future__ import annotations

import math
from contextlib import suppress

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from consort.core.algorithm import Algorithm
from consort.core.known import Form, Known
from consort.core.messages import Call, Payload, Reply
from consort.core.params import Params
from consort.core.wire import tensors_in
from consort.engines.answers import Answers
from consort.engines.middleware import (
    Absent,
    Checked,
    Faulty,
    Metered,
    Policed,
    RefusedReply,
    Wrapper,
    bytes_by_role,
)
from consort.engines.scripted import Scripted
from consort.errors import ClientFailed

CLIENTS = ("a", "b", "c")


def calls_of(*clients: str, round: int = 1, step: int = 0, method: str = "train", **payload):
    return [Call(c, method, round, step, 0, dict(payload)) for c in clients]


def known(client: str) -> Known:
    """A client whose model has a single parameter, of another length for each of them."""
    return Known(Form(Params({"w": torch.zeros(2 + (client == "b"))})), (), lambda: 10)


ANSWERS = Answers(known, Algorithm())
"""Nothing is declared, so only what is wrong in any answer is refused."""


def echo(call: Call) -> Payload:
    return {"client": call.client}


def broken(call: Call) -> Payload:
    """Client b fails."""
    if call.client == "b":
        raise ClientFailed("b", "ValueError: no such label", "Traceback: line 3")
    return echo(call)


class Recovering:
    """Client b fails so many times, then works."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self, call: Call) -> Payload:
        if call.client == "b" and self.failures:
            self.failures -= 1
            raise ClientFailed("b", "out of memory")
        return echo(call)


# The scripted engine


def test_a_script_answers_in_order_and_every_call_is_noted():
    engine = Scripted(echo)
    calls = calls_of(*CLIENTS)
    assert [reply.content for reply in engine.deliver(calls)] == [{"client": c} for c in CLIENTS]
    assert engine.calls == calls


def test_a_failure_in_a_script_is_a_reply_and_other_errors_are_the_tests_own():
    replies = list(Scripted(broken).deliver(calls_of("a", "b")))
    assert replies[0].error is None
    assert replies[1].error.client == "b"
    assert replies[1].content == {}
    with pytest.raises(ZeroDivisionError):
        list(Scripted(lambda call: {"x": 1 / 0}).deliver(calls_of("a")))


def test_a_plain_wrapper_passes_everything_on():
    closed = []

    class Closing(Scripted):
        def close(self):
            closed.append(True)

    wrapper = Wrapper(Wrapper(Closing(echo)))
    assert [reply.client for reply in wrapper.deliver(calls_of(*CLIENTS))] == list(CLIENTS)
    wrapper.close()
    assert closed == [True]


# Counting


def test_bytes_are_sizes_of_tensors_by_the_first_part_of_their_names():
    payload = {
        "model": Params({
            "encoder.0.w": torch.zeros(5, 3),
            "encoder.0.b": torch.zeros(5, dtype=torch.float64),
            "heads.t.w": torch.zeros(2, dtype=torch.bfloat16),
            "buffers.encoder.mean": torch.zeros(()),
        }),
        "parts": [Params({"encoder.0.w": torch.zeros(1, 3)}), (torch.zeros(7, dtype=torch.bool),)],
        "nothing": torch.zeros(0, 4),
        "examples": 12,
        "text": "abc",
    }  # fmt: skip
    assert bytes_by_role(tensors_in(payload)) == {
        "encoder": 5 * 3 * 4 + 5 * 8 + 1 * 3 * 4,
        "heads": 2 * 2,
        "buffers": 4,
        "other": 7,
    }
    assert bytes_by_role(tensors_in({"examples": 3})) == {}


def test_what_goes_down_and_up_is_reported_for_every_client():
    model = Params({"encoder.w": torch.zeros(10), "heads.t.b": torch.zeros(3)})
    record = []

    def script(call):
        return {"head": model.only("heads"), "gradient": torch.zeros(len(call.client), 2)}

    engine = Metered(Scripted(script), lambda *measured: record.append(measured))
    calls = calls_of("a", "bb", model=model, rate=0.1)
    replies = list(engine.deliver(calls))
    assert [reply.client for reply in replies] == ["a", "bb"]
    down = {"encoder": 40, "heads": 12}
    assert record == [
        (calls[0], replies[0], down, {"heads": 12, "other": 8}),
        (calls[1], replies[1], down, {"heads": 12, "other": 16}),
    ]


def test_clients_that_are_sent_different_things_are_counted_apart():
    sizes = {"a": 3, "b": 50, "c": 3}
    record = []
    engine = Metered(Scripted(echo), lambda call, reply, down, up: record.append(down))
    calls = [Call(c, "train", 1, 0, 0, {"x": torch.zeros(n)}) for c, n in sizes.items()]
    list(engine.deliver([*calls, *calls_of("d")]))
    assert record == [{"other": 12}, {"other": 200}, {"other": 12}, {}]


def test_a_client_that_fails_has_sent_nothing_but_was_sent_something():
    record = []
    engine = Metered(Scripted(broken), lambda call, reply, down, up: record.append((down, up)))
    list(engine.deliver(calls_of("b", x=torch.zeros(2))))
    assert record == [({"other": 8}, {})]


def test_seconds_are_those_of_the_engine():
    class Slow:
        def deliver(self, calls):
            return iter([Reply(call.client, seconds=2.5) for call in calls])

        def close(self):
            pass

    record = []
    engine = Metered(Slow(), lambda call, reply, down, up: record.append(reply.seconds))
    list(engine.deliver(calls_of("a", "b")))
    assert record == [2.5, 2.5]


# Checking


@pytest.mark.parametrize(("tensor", "reason"), [
    (torch.zeros(2), r"shape \(2,\), expected \(3,\)"),
    (torch.tensor([0.0, math.nan, 0.0]), "NaN or infinite"),
    (torch.tensor([0.0, math.inf, 0.0]), "NaN or infinite"),
    (torch.zeros(3, dtype=torch.int32), "expected floating point"),
])  # fmt: skip
def test_an_answer_that_cannot_be_right_becomes_an_error_that_names_the_client(tensor, reason):
    good = {"model": Params({"w": torch.zeros(2)})}

    def script(call):
        return good if call.client == "a" else {"model": Params({"w": tensor})}

    engine = Checked(Scripted(script), ANSWERS)
    first, second = engine.deliver(calls_of("a", "b"))
    assert first == Reply("a", good)
    assert isinstance(second.error, RefusedReply)
    assert second.error.client == "b"
    assert second.content == {}
    assert str(second.error).startswith("client b: ")
    with pytest.raises(RefusedReply, match=reason):
        raise second.error


def test_the_error_of_a_client_passes_the_check_unchanged():
    engine = Checked(Scripted(broken), ANSWERS)
    (reply,) = engine.deliver(calls_of("b"))
    assert type(reply.error) is ClientFailed
    assert reply.error.traceback == "Traceback: line 3"


# Losing on purpose


def lost_in(engine: Faulty, round: int, clients=CLIENTS, **call) -> dict[str, str]:
    replies = list(engine.deliver(calls_of(*clients, round=round, **call)))
    assert [reply.client for reply in replies] == list(clients)
    return {reply.client: reply.error.reason for reply in replies if reply.error}


@given(seed=st.integers(0, 999), dropout=st.floats(0, 1), stragglers=st.floats(0, 1))
def test_the_same_seed_loses_the_same_clients(seed, dropout, stragglers):
    first = Faulty(Scripted(echo), seed, dropout, stragglers)
    again = Faulty(Scripted(echo), seed, dropout, stragglers)
    straight = {round: lost_in(first, round) for round in (1, 2, 3)}
    assert {round: lost_in(again, round) for round in (3, 1, 2)} == straight


def test_whom_a_round_loses_depends_neither_on_the_step_nor_on_the_others():
    engine = Faulty(Scripted(echo), 7, 0.4, 0.4)
    for round in range(1, 20):
        together = lost_in(engine, round)
        assert lost_in(engine, round, step=3) == together
        assert lost_in(engine, round, CLIENTS[::-1]) == together
        for client in CLIENTS:
            assert lost_in(engine, round, (client,)).get(client) == together.get(client)


def test_other_seeds_lose_other_clients():
    clients = tuple(f"c{i}" for i in range(40))
    one, other = (lost_in(Faulty(Scripted(echo), seed, 0.5, 0), 1, clients) for seed in (0, 1))
    assert one.keys() != other.keys()


def test_clients_are_lost_about_as_often_as_asked_for_and_independently():
    clients = tuple(f"c{i}" for i in range(50))
    engine = Faulty(Scripted(echo), 0, dropout=0.2, stragglers=0.1)
    rounds = [lost_in(engine, round, clients) for round in range(1, 81)]
    reasons = [reason for lost in rounds for reason in lost.values()]
    trials = 50 * 80
    for reason, share in (("dropped out", 0.2), ("too late", 0.1 * 0.8)):
        count = sum(reason in found for found in reasons)
        assert abs(count - share * trials) < 4 * math.sqrt(trials * share * (1 - share))
    assert len({frozenset(lost) for lost in rounds}) == 80
    assert all(abs(sum(c in lost for lost in rounds) - 80 * 0.28) < 20 for c in clients)


def test_a_client_that_drops_out_is_not_asked_and_a_straggler_works_in_vain():
    dropping, late = Scripted(echo), Scripted(echo)
    gone = list(Faulty(dropping, 0, 1.0, 0.0).deliver(calls_of(*CLIENTS)))
    slow = list(Faulty(late, 0, 0.0, 1.0).deliver(calls_of(*CLIENTS)))
    assert [call.client for call in dropping.calls] == []
    assert [call.client for call in late.calls] == list(CLIENTS)
    for reply in (*gone, *slow):
        assert isinstance(reply.error, Absent)
        assert reply.error.client == reply.client
        assert reply.content == {}


def test_without_faults_nothing_is_lost():
    assert lost_in(Faulty(Scripted(echo), 0, 0.0, 0.0), 1) == {}


def test_evaluation_is_never_disturbed():
    engine = Faulty(Scripted(echo), 0, dropout=1.0, stragglers=1.0)
    assert lost_in(engine, 1, method="test") == {}


def test_answers_stay_with_their_clients_when_others_are_lost():
    clients = tuple(f"c{i}" for i in range(30))
    engine = Faulty(Scripted(echo), 3, 0.3, 0.3)
    replies = list(engine.deliver(calls_of(*clients)))
    kept = [reply for reply in replies if reply.error is None]
    assert 0 < len(kept) < 30
    assert all(reply.content == {"client": reply.client} for reply in kept)


# Policy


def policed(script, policy: str, retries: int = 2):
    told: list[ClientFailed] = []
    inner = Scripted(script)
    return Policed(inner, policy, retries, told.append), inner, told


def test_stop_raises_the_error_with_the_client_and_its_traceback():
    engine, _, told = policed(broken, "stop")
    replies = engine.deliver(calls_of(*CLIENTS))
    assert next(replies).client == "a"
    with pytest.raises(ClientFailed, match="client b: ValueError: no such label") as caught:
        next(replies)
    assert (caught.value.client, caught.value.traceback) == ("b", "Traceback: line 3")
    assert told == []


def test_skip_tells_and_goes_on_without_the_client():
    engine, inner, told = policed(broken, "skip")
    replies = list(engine.deliver(calls_of(*CLIENTS)))
    assert [reply.client for reply in replies if reply.error is None] == ["a", "c"]
    assert [error.client for error in told] == ["b"]
    assert [call.client for call in inner.calls] == ["a", "b", "c"]


@pytest.mark.parametrize("failures", [1, 2])
def test_retry_asks_the_same_again_until_there_is_an_answer(failures):
    engine, inner, told = policed(Recovering(failures), "retry", retries=2)
    calls = calls_of(*CLIENTS, step=4)
    replies = list(engine.deliver(calls))
    assert [(reply.content, reply.error) for reply in replies] == [
        ({"client": client}, None) for client in CLIENTS
    ]
    assert [call for call in inner.calls if call.client == "b"] == [calls[1]] * (1 + failures)
    assert [call.client for call in inner.calls].count("a") == 1
    assert told == []


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_retry_gives_up_after_so_many_times(retries):
    engine, inner, _ = policed(broken, "retry", retries)
    with pytest.raises(ClientFailed, match="client b"):
        list(engine.deliver(calls_of(*CLIENTS)))
    assert [call.client for call in inner.calls].count("b") == 1 + retries


@pytest.mark.parametrize("policy", ["stop", "skip", "retry"])
@pytest.mark.parametrize("kind", [Absent, RefusedReply])
def test_no_policy_stops_for_a_client_that_is_absent_or_was_refused(policy, kind):
    def script(call):
        if call.client == "b":
            raise kind("b", "is not to be had")
        return echo(call)

    engine, inner, told = policed(script, policy)
    replies = list(engine.deliver(calls_of(*CLIENTS)))
    assert [reply.client for reply in replies if reply.error is None] == ["a", "c"]
    assert [(error.client, type(error)) for error in told] == [("b", kind)]
    asked = 3 if policy == "retry" and kind is RefusedReply else 1
    assert [call.client for call in inner.calls].count("b") == asked


def test_a_refused_answer_may_be_right_the_second_time():
    spoilt = [math.nan]

    def script(call):
        return {"x": torch.tensor(spoilt.pop() if spoilt else 1.0)}

    told = []
    engine = Policed(Checked(Scripted(script), ANSWERS), "retry", 1, told.append)
    (reply,) = engine.deliver(calls_of("a"))
    assert reply.content["x"].item() == 1.0
    assert told == []


# All together


@given(
    bad=st.sets(st.sampled_from("abcdef")),
    failing=st.sets(st.sampled_from("abcdef")),
    seed=st.integers(0, 99),
)
def test_whatever_happens_only_good_answers_get_through_and_every_loss_is_told(bad, failing, seed):
    def script(call):
        if call.client in failing:
            raise ClientFailed(call.client, "broke")
        return {"x": torch.tensor(math.nan if call.client in bad else 1.0)}

    metered, told = [], []
    inner = Metered(Scripted(script), lambda call, *_: metered.append(call.client))
    checked = Checked(inner, ANSWERS)
    engine = Policed(Faulty(checked, seed, 0.3, 0.3), "skip", 0, told.append)
    replies = list(engine.deliver(calls_of(*"abcdef")))
    assert [reply.client for reply in replies] == list("abcdef")
    good = {reply.client for reply in replies if reply.error is None}
    assert good.isdisjoint(bad | failing)
    assert {error.client for error in told} == set("abcdef") - good
    assert len(told) == len(replies) - len(good)
    absent = {error.client for error in told if isinstance(error, Absent)}
    assert good == set("abcdef") - bad - failing - absent
    assert good <= set(metered)


def test_a_policy_that_stops_lets_go_of_the_engine_inside():
    finished = []

    class Holding(Scripted):
        def deliver(self, calls):
            try:
                yield from super().deliver(calls)
            finally:
                finished.append(True)

    engine = Policed(Checked(Holding(broken), ANSWERS), "stop", 0, print)
    with suppress(ClientFailed):
        list(engine.deliver(calls_of(*CLIENTS)))
    assert finished == [True]
