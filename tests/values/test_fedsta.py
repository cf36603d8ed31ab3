"""FedSTA is FedPer until tails are averaged, and then once averages them by task."""

from __future__ import annotations

import torch
from tests.contract.helpers import overhear
from tests.helpers import two_task_federation
from tests.values.by_hand import play

from consort.algorithms.fedper import FedPer
from consort.algorithms.fedsta import FedSTA, task_means
from consort.core.params import Params, mean
from consort.core.wire import encode
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.2, batch=16)


def test_tails_are_averaged_by_task_and_shape():
    tails = {
        "a": Params({"heads.seg.w": torch.tensor([1.0])}),
        "b": Params({"heads.seg.w": torch.tensor([3.0]), "heads.depth.w": torch.tensor([5.0])}),
        "c": Params({"heads.seg.w": torch.tensor([7.0, 7.0])}),
    }
    found = task_means(tails)
    assert found["a"]["heads.seg.w"].tolist() == [2.0]
    assert found["b"]["heads.seg.w"].tolist() == [2.0]
    assert found["b"]["heads.depth.w"].tolist() == [5.0]
    assert found["c"]["heads.seg.w"].tolist() == [7.0, 7.0]


def test_before_tails_are_due_it_is_fedper(tmp_path):
    found = play(FedSTA(LOCAL, every=9), two_task_federation(), tmp_path / "sta", rounds=3)
    per = play(FedPer(LOCAL), two_task_federation(), tmp_path / "per", rounds=3)
    assert encode(found.server.encoder) == encode(per.server.encoder)
    for client, state in found.states.items():
        assert encode(state["tail"]) == encode(per.states[client]["personal"])
    assert not found.server.tails


def test_tails_travel_in_the_rounds_in_which_they_are_due():
    federation = two_task_federation()
    exchanges, servers = overhear(FedSTA(LOCAL, every=2), federation, rounds=3)
    training = [e for e in exchanges if not e.call.evaluation]
    for exchange in training:
        sent = exchange.reply.content["tail"]
        assert bool(sent) == (exchange.call.round == 2)
        received = exchange.call.payload["tail"]
        assert bool(received) == (exchange.call.round == 3)
        if received:
            assert received.equals(servers[2].tails[exchange.call.client])
    sent = {e.call.client: e.reply.content["tail"] for e in training if e.call.round == 2}
    expected = mean([tail.only("heads.colour") for tail in sent.values()])
    for tail in servers[2].tails.values():
        assert tail.only("heads.colour").equals(expected)
    assert servers[3].tails == {}
