"""FedAMP among unlike tasks: encoders attend to encoders, decoders to decoders of one form."""

from __future__ import annotations

import torch
from tests.helpers import two_task_federation
from tests.values.by_hand import play

from consort.aggregation.distance_attention import distance_attention, squared_distances
from consort.algorithms.fedamp_parts import FedAMPParts, Server
from consort.algorithms.local_only import LocalOnly
from consort.core.algorithm import Clients
from consort.core.params import Params
from consort.core.wire import encode
from consort.engines.scripted import Scripted
from consort.training.local import LocalTraining

MODELS = {
    "a": Params({"encoder.w": torch.tensor([2.0]), "decoders.seg.w": torch.tensor([3.0])}),
    "b": Params(
        {
            "encoder.w": torch.tensor([4.0]),
            "decoders.seg.w": torch.tensor([6.0]),
            "decoders.depth.w": torch.tensor([9.0]),
        }
    ),
    "c": Params({"encoder.w": torch.tensor([0.0]), "decoders.depth.w": torch.ones(2)}),
}


def by_hand(values):
    rows = [Params({"w": torch.tensor([value])}) for value in values]
    return distance_attention(squared_distances(rows), 0.5, 2.0) @ torch.tensor(values).double()


def test_clouds_are_means_by_attention_of_encoders_and_of_decoders_of_one_form():
    engine = Scripted(lambda call: {"model": MODELS[call.client]})
    clients = Clients(("a", "b", "c"), 1, 5, 0, engine, 3)
    found = FedAMPParts(alpha=0.5, sigma=2.0).round(Server(MODELS), clients).models
    encoders = by_hand([2.0, 4.0, 0.0])
    for model, expected in zip(found.values(), encoders, strict=True):
        torch.testing.assert_close(model["encoder.w"].double(), expected[None])
    one, two, three = by_hand([3.0, 6.0, 9.0])
    torch.testing.assert_close(found["a"]["decoders.seg.w"].double(), one[None])
    torch.testing.assert_close(found["b"]["decoders.seg.w"].double(), two[None])
    torch.testing.assert_close(found["b"]["decoders.depth.w"].double(), three[None])
    assert found["c"]["decoders.depth.w"].tolist() == [1.0, 1.0]
    assert {c: model.shapes for c, model in found.items()} == {
        c: model.shapes for c, model in MODELS.items()
    }


def test_who_is_absent_keeps_its_cloud_and_does_not_count():
    engine = Scripted(lambda call: {"model": MODELS[call.client]})
    found = FedAMPParts().round(Server(MODELS), Clients(("c",), 1, 5, 0, engine, 3)).models
    assert all(found[client].equals(MODELS[client]) for client in MODELS)


def test_without_a_pull_everybody_trains_alone(tmp_path):
    local = LocalTraining(lr=0.2, batch=16)
    found = play(
        FedAMPParts(local, strength=0.0), two_task_federation(), tmp_path / "off", rounds=3
    )
    alone = play(LocalOnly(local), two_task_federation(), tmp_path / "alone", rounds=3)
    for client, state in alone.states.items():
        assert encode(found.states[client]["model"]) == encode(state["model"])
