from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from tests.helpers import assert_same, tiny_federation

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import Algorithm, Clients, on_client
from consort.core.messages import Call
from consort.core.params import Params
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.states import StateStore
from consort.errors import Failure
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

HEAD = "heads.classify.weight"


@dataclass(frozen=True)
class Probe(Algorithm[int]):
    """Client methods that show what a client sees."""

    private: ClassVar[tuple[str, ...]] = ("heads",)

    @on_client
    def draw(self, client):
        return {
            "own": torch.rand(3, generator=client.generator),
            "torch": torch.rand(3),
            "dropped": torch.nn.functional.dropout(torch.ones(50)),
        }

    @on_client
    def look(self, client):
        return {
            "round": client.round,
            "rounds": client.rounds,
            "id": client.id,
            "tasks": list(client.tasks),
            "examples": client.examples,
        }

    @on_client
    def spoil(self, client):
        with torch.no_grad():
            for parameter in client.model.parameters():
                parameter.fill_(7.0)
        return {}

    @on_client
    def encoder(self, client):
        return {"model": Params.of(client.model).only("encoder")}

    @on_client
    def leak(self, client):
        return {"deep": [{"inside": Params.of(client.model)}]}

    @on_client
    def count(self, client):
        client.state["calls"] = client.state.get("calls", 0) + 1
        return {"calls": client.state["calls"]}

    @on_client
    def test(self, client):
        return self.count(client)

    @on_client
    def recall(self, client):
        return dict(client.state)

    @on_client
    def fail(self, client):
        raise KeyError("no such label")

    @on_client
    def give_up(self, client):
        raise Failure("there is nothing to learn here")

    @on_client
    def echo(self, client, model):
        return {"model": model}

    @on_client
    def unsendable(self, client):
        return {"inside": [{1, 2}]}

    @on_client
    def record(self, client):
        return {"inside": {"call": call("look")}}

    @on_client
    def module(self, client):
        return {"head": client.model.heads["classify"]}

    def secret(self, client):
        return {"secret": True}


def host_of(federation=None, seed=0, store=None, algorithm=None):
    federation = federation or tiny_federation(3)
    return ClientHost(federation, algorithm or Probe(), seed, 5, store or StateStore())


def call(method, client="c0", round=1, step=0, turn=0, **payload):
    return Call(client, method, round, step, turn, payload)


def answer(host, *args, **kwargs):
    (reply,) = host.answer([call(*args, **kwargs)])
    assert reply.error is None, reply.error
    assert reply.seconds > 0
    return reply.content


def error(host, *args, **kwargs):
    (reply,) = host.answer([call(*args, **kwargs)])
    assert reply.error is not None
    assert reply.content == {}
    return reply.error


# Randomness


def test_draws_depend_on_seed_round_client_method_and_turn_alone():
    place = {"client": "c1", "round": 2, "turn": 1}
    first = answer(host_of(), "draw", **place)
    busy = host_of()
    answer(busy, "draw", "c0")
    torch.rand(100)
    assert_same(answer(busy, "draw", step=4, **place), first)
    others = [
        answer(host_of(seed=1), "draw", **place),
        answer(host_of(), "draw", **place | {"client": "c0"}),
        answer(host_of(), "draw", **place | {"round": 3}),
        answer(host_of(), "draw", **place | {"turn": 0}),
    ]
    for other in others:
        assert not torch.equal(other["own"], first["own"])
        assert not torch.equal(other["torch"], first["torch"])
        assert not torch.equal(other["dropped"], first["dropped"])


def test_the_generator_and_that_of_torch_are_not_the_same():
    drawn = answer(host_of(), "draw")
    assert not torch.equal(drawn["own"], drawn["torch"])


# What a client sees


def test_a_client_knows_its_name_its_tasks_and_how_far_the_run_is():
    seen = answer(host_of(), "look", "c2", round=4)
    assert seen == {"round": 4, "rounds": 5, "id": "c2", "tasks": ["classify"], "examples": 32}


def test_every_call_finds_the_initial_weights_whatever_was_done_before():
    host = host_of()
    before = host.federation.roster.model("c0").only("encoder")
    answer(host, "spoil", "c1")
    answer(host, "spoil", "c0")
    assert_same(answer(host, "encoder")["model"], before)


# Memory


def test_a_client_remembers_from_call_to_call_and_nobody_else_does():
    host = host_of()
    assert answer(host, "count", step=0) == {"calls": 1}
    assert answer(host, "count", step=1) == {"calls": 2}
    assert answer(host, "count", round=2) == {"calls": 3}
    assert answer(host, "recall", "c1", round=3) == {}


def test_a_call_that_is_made_again_finds_what_it_found_the_first_time():
    host = host_of()
    answer(host, "count", step=0)
    assert answer(host, "count", step=1) == {"calls": 2}
    assert answer(host, "count", step=1) == {"calls": 2}


def test_what_is_done_while_testing_is_forgotten():
    host = host_of()
    answer(host, "count")
    assert answer(host, "test", round=2) == {"calls": 2}
    assert answer(host, "count", round=2) == {"calls": 2}


def test_a_test_sees_what_the_training_of_its_round_wrote():
    host = host_of()
    answer(host, "count", step=0)
    answer(host, "count", step=1)
    assert answer(host, "test") == {"calls": 3}


def test_memory_on_disk_outlives_the_host(tmp_path):
    answer(host_of(store=StateStore(tmp_path)), "count")
    assert answer(host_of(store=StateStore(tmp_path)), "count", round=2) == {"calls": 2}


def test_a_client_that_failed_has_not_changed_its_memory():
    @dataclass(frozen=True)
    class Hasty(Probe):
        @on_client
        def count(self, client):
            super().count(client)
            raise RuntimeError("after the change")

    store = StateStore()
    error(host_of(store=store, algorithm=Hasty()), "count")
    assert answer(host_of(store=store), "recall", round=2) == {}


@pytest.mark.parametrize(("batchnorm", "kept"), [("local", True), ("average", False)])
def test_own_statistics_are_remembered_where_they_are_local(batchnorm, kept, normed_encoder):
    federation = tiny_federation(2, model={"name": "normed"}, batchnorm=batchnorm)
    store = StateStore()
    host = host_of(federation, store=store, algorithm=FedAvg(LocalTraining(batch=8)))
    answer(host, "train", model=federation.roster.shared())
    state = store.load("c0", (2, 0))
    assert bool(state) is kept
    if kept:
        (own,) = state.values()
        assert set(own) == {
            "buffers.encoder.norm.running_mean",
            "buffers.encoder.norm.running_var",
        }
        answer(host, "test", "c1", model=federation.roster.shared())
        answer(host, "test", "c0", round=2, model=federation.roster.shared())
        mean = federation.blueprint("c0").model.encoder.norm.running_mean
        assert_same(mean, own["buffers.encoder.norm.running_mean"])


# What is refused


@pytest.mark.parametrize("method", ["secret", "start", "private", "nowhere", "__init__"])
def test_only_client_methods_can_be_called(method):
    failed = error(host_of(), method)
    expected = f"{method} is not a method that clients answer: mark it with @on_client"
    assert str(failed) == f"client c0: {expected}"


def test_what_is_private_is_not_sent_however_deep_it_lies():
    failed = error(host_of(), "leak")
    expected = f"{HEAD!r} is private in this algorithm and was not sent: leave it out of the answer"
    assert str(failed) == f"client c0: {expected}"


def test_what_is_not_private_is_sent():
    assert set(answer(host_of(), "encoder")["model"]) == {
        "encoder.layers.0.weight",
        "encoder.layers.0.bias",
    }


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        ({"encoder.w": torch.ones(2)}, "no parameter 'encoder.w'"),
        ({"encoder.layers.0.bias": torch.ones(17)}, r"shape \(17,\), expected \(16,\)"),
        ({"encoder.layers.0.bias": torch.ones(16).long()}, "type torch.int64"),
        ({"encoder.layers.0.bias": torch.full((16,), torch.nan)}, "NaN or infinite"),
    ],
)
def test_a_payload_that_cannot_be_right_is_refused(odd, reason):
    failed = error(host_of(), "echo", model=Params(odd))
    with pytest.raises(Failure, match=f"client c0: .*{reason}"):
        raise failed


def test_a_payload_is_checked_against_the_model_of_each_client():
    """It was fine for the client before; that does not make it fine for this one."""
    members = {
        **tiny_federation(1).members,
        "c1": tiny_federation(2, model={"name": "mlp", "hidden": [9]}).members["c1"],
    }
    host = host_of(Federation(members))
    model = host.federation.roster.model("c0").only("encoder")
    assert_same(answer(host, "echo", "c0", model=model)["model"], model)
    assert "has shape (16, 8), expected (9, 8)" in str(error(host, "echo", "c1", model=model))
    assert_same(answer(host, "echo", "c0", model=model)["model"], model)


@pytest.mark.parametrize(
    ("method", "kind"), [("unsendable", "set"), ("record", "Call"), ("module", "Linear")]
)
def test_what_cannot_be_written_down_is_not_sent(method, kind):
    assert f"client c0: a {kind} cannot be sent" in str(error(host_of(), method))


# What goes wrong


def test_an_error_in_the_code_of_a_method_comes_with_its_traceback():
    failed = error(host_of(), "fail", "c1")
    assert failed.client == "c1"
    assert failed.reason == "KeyError: 'no such label'"
    assert 'raise KeyError("no such label")' in failed.traceback


def test_an_error_that_explains_itself_comes_without():
    failed = error(host_of(), "give_up")
    assert str(failed) == "client c0: there is nothing to learn here"
    assert failed.traceback == ""


def test_a_payload_that_the_method_does_not_take_is_an_error_of_the_client():
    assert "TypeError" in str(error(host_of(), "look", surprise=1))


def test_data_that_cannot_be_loaded_are_an_error_of_the_client():
    def load():
        raise OSError("the disk is gone")

    members = tiny_federation(2).members
    host = host_of(Federation(members | {"c0": replace(members["c0"], load=load)}))
    assert str(error(host, "look")) == "client c0: OSError: the disk is gone"
    assert answer(host, "look", "c1")["id"] == "c1"


# The engine in this process


def test_the_embedded_engine_answers_when_it_is_asked_for_the_next_reply():
    store = StateStore()
    engine = Embedded(host_of(store=store))
    replies = engine.deliver([call("count", client) for client in ("c2", "c0", "c1")])
    assert next(replies).client == "c2"
    assert store.load("c2", (2, 0)) == {"calls": 1}
    assert store.load("c0", (2, 0)) == {}
    assert [reply.client for reply in replies] == ["c0", "c1"]
    engine.close()


def test_the_embedded_engine_goes_on_after_an_error():
    engine = Embedded(host_of())
    replies = list(engine.deliver([call("fail"), call("look", "c1")]))
    assert [reply.error is None for reply in replies] == [False, True]


def test_a_second_question_with_the_same_method_has_draws_of_its_own():
    federation = tiny_federation(2)
    engine = Embedded(host_of(federation))
    clients = Clients(federation.client_ids, 1, 5, 0, engine, 2)
    first, second = clients.ask(Probe().draw), clients.ask(Probe().draw)
    assert not torch.equal(first["c0"]["own"], second["c0"]["own"])
    again = Clients(federation.client_ids, 1, 5, 0, engine, 2)
    assert_same(again.ask(Probe().draw)["c1"], first["c1"])
