"""Ditto among unlike tasks: FedAvg of parts for the others, and a personal model beside it."""

from __future__ import annotations

import torch
from tests.helpers import two_task_federation
from tests.values.by_hand import play

from consort.algorithms.ditto_parts import DittoParts
from consort.algorithms.fedavg_parts import FedAvgParts
from consort.algorithms.local_only import LocalOnly
from consort.core.wire import encode
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.2, batch=1000)


def gap(found, other):
    return max(float((found[name] - other[name]).abs().max()) for name in other)


def test_what_the_others_get_is_fedavg_of_parts_bit_for_bit(tmp_path):
    ditto = play(DittoParts(LOCAL), two_task_federation(), tmp_path / "ditto", rounds=3)
    plain = play(FedAvgParts(LOCAL), two_task_federation(), tmp_path / "plain", rounds=3)
    assert encode(ditto.server.models) == encode(plain.server.models)


def test_without_a_pull_the_personal_model_trains_alone(tmp_path):
    ditto = play(DittoParts(LOCAL, strength=0.0), two_task_federation(), tmp_path / "a", rounds=3)
    alone = play(LocalOnly(LOCAL), two_task_federation(), tmp_path / "b", rounds=3)
    for client, state in alone.states.items():
        assert gap(ditto.states[client]["personal"], state["model"]) < 1e-5


def test_a_strong_pull_holds_the_personal_model_to_what_was_received(tmp_path):
    local = LocalTraining(lr=0.01, batch=1000)
    loose, tight = (
        play(DittoParts(local, strength=s, personal_epochs=20), two_task_federation(), tmp_path / n)
        for n, s in (("loose", 0.0), ("tight", 90.0))
    )
    start = FedAvgParts().start(two_task_federation().roster).models
    for client, received in start.items():
        far, near = (gap(out.states[client]["personal"], received) for out in (loose, tight))
        assert near < far / 3
        heads = [out.states[client]["personal"].only("heads") for out in (loose, tight)]
        assert all(torch.isfinite(t).all() for head in heads for t in head.values())
