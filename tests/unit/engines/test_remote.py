"""The far side of an engine that moves bytes, without an engine between."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass

import pytest
import torch
from tests.helpers import assert_same, tiny_federation

import consort
from consort.core.algorithm import Algorithm, on_client
from consort.core.messages import Call
from consort.core.wire import encode
from consort.engines.choice import Origin
from consort.engines.host import ClientHost
from consort.engines.remote import FarSide, read_answers, write_order, write_plan
from consort.engines.states import StateStore
from consort.errors import UsageError

ORIGIN = Origin(f"{__file__}:rebuild", {"clients": 2})


@dataclass(frozen=True)
class Counting(Algorithm[int]):
    """Clients that remember how often they were asked."""

    @on_client
    def count(self, client, **payload):
        client.state["calls"] = client.state.get("calls", 0) + 1
        return {"calls": client.state["calls"], **payload}

    @on_client
    def look(self, client):
        return {"calls": client.state.get("calls", 0)}

    @on_client
    def test(self, client):
        return self.count(client)

    @on_client
    def fail(self, client):
        client.state["calls"] = 100
        raise ZeroDivisionError("no examples")


def rebuild(clients):
    if clients < 1:
        raise UsageError("there are no data here")
    return tiny_federation(clients), Counting()


def host_of(store):
    return ClientHost(*rebuild(2), 0, 3, store)


def far_side():
    side = FarSide()
    assert side.prepare(write_plan(host_of(StateStore()), ORIGIN)) == ""
    return side


def asked(side, call, store, shared=b"", delivery=1, common=frozenset()):
    order = write_order([call], delivery, set(common), store)
    ((reply, state),) = read_answers(side.answer(shared or encode({}), order))
    return reply, state


@pytest.mark.parametrize("on_disk", [True, False])
def test_memory_comes_with_the_call_and_goes_back_with_the_answer(on_disk, tmp_path):
    """Each call is answered by another far side, and nothing is kept there."""
    store = StateStore(tmp_path if on_disk else None)
    for round_ in (1, 2, 3):
        call = Call("c0", "count", round_, 0, 0, {})
        reply, state = asked(far_side(), call, store)
        assert reply.content == {"calls": round_}
        store.write("c0", call.stamp, state)
    assert store.load("c0", (4, 0)) == {"calls": 3}


def test_memory_is_that_of_the_host_bit_for_bit(tmp_path):
    near = host_of(StateStore(tmp_path / "near"))
    far = StateStore(tmp_path / "far")
    call = Call("c1", "count", 1, 2, 0, {"value": torch.arange(3.0)})
    (expected,) = near.answer([call])
    reply, state = asked(far_side(), call, far)
    far.write("c1", call.stamp, state)
    assert_same(reply.content, expected.content)
    assert near.store.read("c1", (1, 3)) == far.read("c1", (1, 3)) != b""


def test_a_call_that_is_repeated_finds_the_memory_it_found_before():
    store, side = StateStore(), far_side()
    call = Call("c0", "count", 1, 0, 0, {})
    for _ in range(2):
        reply, state = asked(side, call, store)
        assert reply.content == {"calls": 1}
        store.write("c0", call.stamp, state)


def test_what_is_not_kept_does_not_travel():
    store, side = StateStore(), far_side()
    assert asked(side, Call("c0", "look", 1, 0, 0, {}), store)[1] == b""
    assert asked(side, Call("c0", "test", 1, 0, 0, {}), store)[1] == b""
    reply, state = asked(side, Call("c0", "fail", 1, 0, 0, {}), store)
    assert str(reply.error) == "client c0: ZeroDivisionError: no examples"
    assert 'raise ZeroDivisionError("no examples")' in reply.error.traceback
    assert state == b""


def test_an_evaluated_client_knows_what_it_wrote_in_this_round():
    store, side = StateStore(), far_side()
    _, state = asked(side, Call("c0", "count", 1, 5, 0, {}), store)
    store.write("c0", (1, 5), state)
    evaluated = Call("c0", "test", 1, 0, 0, {})
    assert asked(side, evaluated, store)[0].content == {"calls": 2}
    assert asked(side, Call("c0", "look", 1, 0, 0, {}), store)[0].content == {"calls": 0}


def test_what_is_common_is_read_once_in_a_delivery_and_anew_in_the_next():
    store, side = StateStore(), far_side()
    for delivery, value in ((1, 1.0), (2, 2.0)):
        shared = encode({"value": torch.full((3,), value)})
        for client in ("c0", "c1"):
            call = Call(client, "count", delivery, 0, 0, {"value": None, "own": client})
            reply, _ = asked(side, call, store, shared, delivery, {"value"})
            assert reply.content["value"].tolist() == [value] * 3
            assert reply.content["own"] == client


def test_a_far_side_of_another_version_takes_no_part(monkeypatch):
    plan = write_plan(host_of(StateStore()), ORIGIN)
    monkeypatch.setattr(consort, "__version__", "0.0.1")
    assert (
        FarSide().prepare(plan).startswith(f"{socket.gethostname()}: it has {{'consort': '0.0.1'")
    )


def test_a_far_side_says_why_it_cannot_build_the_clients():
    plan = json.loads(write_plan(host_of(StateStore()), Origin(ORIGIN.place, {"clients": 0})))
    here = socket.gethostname()
    assert FarSide().prepare(json.dumps(plan).encode()) == f"{here}: there are no data here"
    plan["arguments"] = {"clients": "many"}
    assert "TypeError" in FarSide().prepare(json.dumps(plan).encode())
