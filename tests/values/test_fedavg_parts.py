"""Averages of encoders and of all decoders, tensor by tensor."""

from __future__ import annotations

import pytest
import torch
from tests.helpers import tiny_member, two_task_federation
from tests.values.by_hand import play

from consort.algorithms.fedavg_parts import FedAvgParts, Server
from consort.algorithms.local_only import LocalOnly
from consort.core.algorithm import Clients
from consort.core.params import Params
from consort.core.wire import encode
from consort.engines.scripted import Scripted
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.2, batch=16)
MODELS = {
    "a": Params({"encoder.w": torch.tensor([2.0]), "decoders.seg.w": torch.tensor([3.0])}),
    "b": Params(
        {
            "encoder.w": torch.tensor([4.0]),
            "decoders.seg.w": torch.tensor([6.0]),
            "decoders.depth.w": torch.tensor([9.0]),
        }
    ),
    "c": Params({"encoder.w": torch.tensor([0.0]), "decoders.depth.w": torch.tensor([0.0])}),
}


def after_round(ids):
    engine = Scripted(lambda call: {"model": MODELS[call.client]})
    clients = Clients(ids, 1, 5, 0, engine, 3)
    return FedAvgParts().round(Server(MODELS), clients).models


def test_everybody_gets_the_mean_encoder_and_the_mean_of_all_decoders():
    found = after_round(("a", "b", "c"))
    for client, model in found.items():
        assert model.keys() == MODELS[client].keys()
        assert model["encoder.w"].item() == pytest.approx(2.0)
        for name in model.only("decoders"):
            assert model[name].item() == pytest.approx((3 + 6 + 9 + 0) / 4)


def test_who_is_absent_gets_it_too_and_does_not_count():
    found = after_round(("a", "b"))
    assert found["c"]["encoder.w"].item() == pytest.approx(3.0)
    assert found["c"]["decoders.depth.w"].item() == pytest.approx((3 + 6 + 9) / 3)


def test_tensors_of_other_shapes_are_averaged_among_their_like():
    wide = MODELS | {"b": Params({"encoder.w": torch.ones(1), "decoders.seg.w": torch.ones(2)})}
    engine = Scripted(lambda call: {"model": wide[call.client]})
    found = FedAvgParts().round(Server(wide), Clients(("a", "b"), 1, 5, 0, engine, 3)).models
    assert found["a"]["decoders.seg.w"].tolist() == [3.0]
    assert found["b"]["decoders.seg.w"].tolist() == [1.0, 1.0]


def test_one_client_trains_alone_and_a_pull_holds_it_back(tmp_path):
    federation = Federation({"a": tiny_member("a")})
    found = play(FedAvgParts(LOCAL), federation, tmp_path / "one", rounds=3)
    alone = play(LocalOnly(LOCAL), federation, tmp_path / "alone", rounds=3).states["a"]["model"]
    assert encode(found.server.models["a"]) == encode(alone.only("encoder"))
    held = play(FedAvgParts(LOCAL, mu=2.0), federation, tmp_path / "held").server.models["a"]
    free = play(FedAvgParts(LOCAL), federation, tmp_path / "free").server.models["a"]
    start = federation.roster.model("a").only("encoder")
    assert (held - start).norm() < 0.9 * (free - start).norm()


def test_clients_with_other_tasks_share_an_encoder(tmp_path):
    models = play(FedAvgParts(LOCAL), two_task_federation(), tmp_path, rounds=2).server.models
    assert len({encode(model.only("encoder")) for model in models.values()}) == 1
