"""MaT-FL against its description, written out."""

from __future__ import annotations

import torch
from tests.helpers import two_task_federation

from consort.algorithms.matfl import MaTFL, Server, cosines
from consort.core.algorithm import Clients
from consort.core.params import Params, mean
from consort.engines.scripted import Scripted

POINTS = {"a": [1.0, 0.1], "b": [1.0, -0.1], "c": [-2.0, 0.0]}
ENCODERS = {name: Params({"encoder.w": torch.tensor(point)}) for name, point in POINTS.items()}


def after_round(algorithm, ids=("a", "b", "c"), encoders=ENCODERS):
    engine = Scripted(lambda call: {"encoder": encoders[call.client]})
    start = dict.fromkeys(encoders, Params({"encoder.w": torch.zeros(2)}))
    return algorithm.round(Server(start), Clients(ids, 1, 5, 0, engine, 3)).encoders


def test_each_client_gets_the_mean_of_its_cluster():
    found = after_round(MaTFL())
    for client in ("a", "b"):
        torch.testing.assert_close(found[client]["encoder.w"], torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(found["c"]["encoder.w"], torch.tensor([-2.0, 0.0]))


def test_one_cluster_is_the_mean_of_all():
    found = after_round(MaTFL(clusters=1))
    assert all(encoder.equals(mean(list(ENCODERS.values()))) for encoder in found.values())


def test_soft_weights_are_cosines_cut_at_zero():
    found = after_round(MaTFL(groups="soft"))
    points = torch.tensor(list(POINTS.values()))
    ways = points - points.mean(0)
    ways = ways / ways.norm(dim=1, keepdim=True)
    weights = (ways @ ways.T).clamp(min=0)
    expected = weights / weights.sum(1, keepdim=True) @ points
    for row, client in zip(expected, POINTS, strict=True):
        torch.testing.assert_close(found[client]["encoder.w"], row, atol=1e-5, rtol=1e-5)


def test_cosines_are_seen_from_the_mean_and_one_alone_is_like_itself():
    found = cosines(list(ENCODERS.values()))
    assert float(found[0, 1]) > 0.9
    assert float(found[0, 2]) < -0.9
    assert cosines([ENCODERS["a"]]).tolist() == [[1.0]]
    assert cosines([ENCODERS["a"]] * 2).tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_who_is_absent_keeps_its_encoder():
    found = after_round(MaTFL(clusters=1), ids=("a", "c"))
    assert found["b"]["encoder.w"].tolist() == [0.0, 0.0]
    torch.testing.assert_close(found["a"]["encoder.w"], torch.tensor([-0.5, 0.05]))


def test_everybody_starts_from_one_encoder_whatever_its_tasks():
    encoders = MaTFL().start(two_task_federation().roster).encoders
    assert len({id(encoder) for encoder in encoders.values()}) == 1
