from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from tests.helpers import (
    TWO_TASKS,
    tiny_federation,
    two_task_federation,
    unlike_models_federation,
)

from consort.algorithms.fedavg import FedAvg
from consort.core.algorithm import Algorithm, on_client
from consort.core.messages import Call
from consort.core.params import Params
from consort.engines.answers import Answers
from consort.engines.embedded import Embedded
from consort.engines.host import ClientHost
from consort.engines.middleware import Checked
from consort.engines.states import StateStore
from consort.errors import Failure, UsageError
from consort.training.client import Client

SMALL = {"name": "mlp", "hidden": [5]}


@dataclass(frozen=True)
class Echo(Algorithm[object]):
    private = ("encoder", "heads")

    companion: dict[str, Any] = field(default_factory=dict)
    leak: bool = False

    @on_client
    def send(self, client: Client, companion: Params) -> dict[str, Any]:
        companion.load_into(client.model)
        both = Params.of(client.model)
        return {"model": both if self.leak else both.only("companion")}

    @on_client
    def test(self, client: Client) -> dict[str, Any]:
        return {"companion": client.score(client.companion), "own": client.score()}


def ask(algorithm, federation, method, **payload):
    host = ClientHost(federation, algorithm, 0, 1, StateStore())
    engine = Checked(Embedded(host), Answers.sent(host.federation, algorithm))
    (reply,) = engine.deliver([Call("c1", method, 1, 0, 0, payload)])
    return reply


def test_everybody_has_the_same_companion_beside_an_own_model():
    federation = unlike_models_federation()
    roster = federation.roster.accompanied(SMALL)
    shared = roster.shared("companion")
    assert {len(t) for n, t in shared.items() if "encoder" in n} == {5}
    for client in federation.client_ids:
        mine = roster.model(client)
        assert mine.without("companion").equals(federation.roster.model(client))
        assert mine.only("companion").equals(shared)
    with pytest.raises(UsageError, match="c0 and c1 differ"):
        roster.shared("encoder")


@pytest.mark.parametrize("tasks", [{"classify": 3}, TWO_TASKS], ids=len)
def test_it_computes_what_a_model_of_its_own_does(tasks):
    federation = tiny_federation(2, tasks=tasks).accompanied(SMALL)
    model = federation.blueprint("c0").fresh()
    inputs = federation.data("c0").test.inputs
    alone = tiny_federation(2, tasks=tasks, model=SMALL).blueprint("c0").fresh()
    start = {n.removeprefix("companion."): t for n, t in model.slots().items() if "comp" in n}
    Params(start).load_into(alone)
    for task, output in model.companion(inputs).items():
        torch.testing.assert_close(output, alone(inputs)[task])
        assert not torch.equal(output, model(inputs)[task])


def test_without_a_table_it_is_the_smallest_model_but_no_twin():
    federation = unlike_models_federation()
    found = federation.accompanied({})
    assert {m.companion for m in found.members.values()} == {federation.members["c0"].model}
    model = found.roster.model("c0")
    name = "encoder.layers.0.weight"
    assert model[name].shape == model[f"companion.{name}"].shape
    assert not torch.equal(model[name], model[f"companion.{name}"])
    assert federation.accompanied({}) is found
    assert federation.accompanied(SMALL) is not found


def test_clients_with_other_tasks_have_no_common_companion():
    with pytest.raises(UsageError, match=r"clients c0 and c1 differ in 'companion\."):
        two_task_federation().roster.accompanied({}).shared("companion")


def test_an_impossible_companion_is_named():
    with pytest.raises(UsageError, match="no model 'mpl'"):
        tiny_federation().roster.accompanied({"name": "mpl"})


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_its_statistics_travel_with_it_or_stay(batchnorm):
    federation = tiny_federation(2, model={"name": "normed"}, batchnorm=batchnorm)
    shared = federation.roster.accompanied({}).shared("companion")
    travelling = [name for name in shared if name.startswith("buffers.companion.")]
    assert len(travelling) == (2 if batchnorm == "average" else 0)


def test_it_is_sent_checked_and_scored_while_the_own_model_stays():
    federation = unlike_models_federation()
    companion = federation.roster.accompanied(SMALL).shared("companion") * 0.5
    reply = ask(Echo(SMALL), federation, "send", companion=companion)
    assert reply.error is None
    assert reply.content["model"].equals(companion)
    leak = ask(Echo(SMALL, leak=True), federation, "send", companion=companion)
    assert "private" in str(leak.error)
    (name, *_) = companion
    wrong = companion | {name: torch.zeros(2, 2)}
    refused = ask(Echo(SMALL), federation, "send", companion=wrong)
    assert f"{name!r} has shape (2, 2)" in str(refused.error)
    scores = ask(Echo(SMALL), federation, "test").content
    assert scores["companion"] != scores["own"]


def test_other_algorithms_have_none():
    federation = tiny_federation(2)
    host = ClientHost(federation, FedAvg(), 0, 1, StateStore())
    assert host.federation is federation
    reply = ask(FedAvg(), federation, "train", model=federation.roster.shared())
    assert not any("companion" in name for name in reply.content["model"])
    model = federation.blueprint("c0").fresh()
    client = Client("c0", model, {}, federation.data("c0"), {}, torch.Generator(), 1, 1)
    with pytest.raises(Failure, match="no companion"):
        _ = client.companion
