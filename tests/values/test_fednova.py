from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.values.by_hand import (
    SIZES,
    Quadratic,
    assert_close,
    average,
    descend,
    initial,
    play,
    quadratic_member,
    three_clients,
)

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fednova import FedNova
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

LR = 0.2
BATCH = 10
STEPS = (2, 2, 3)
"""Steps of the clients with 12, 20 and 28 examples, if a batch has ten."""


def trained_by_fedavg(federation, local, tmp_path, client):
    alone = Federation({client: federation.members[client]}, federation.seed)
    return dict(play(FedAvg(local), alone, tmp_path / f"alone-{client}").server.model)


def moved(start, models, counts, weights, tau_eff):
    """x - tau_eff * sum of p_i (x - x_i) / ||a_i||_1."""
    ways = [
        {n: (start[n] - m[n]) / count for n in start}
        for m, count in zip(models, counts, strict=True)
    ]
    direction = average(ways, weights)
    return {n: start[n] - tau_eff * direction[n] for n in start}


def test_one_round_follows_the_formula(tmp_path):
    federation = three_clients()
    local = LocalTraining(lr=LR, batch=BATCH)
    models = [trained_by_fedavg(federation, local, tmp_path, c) for c in federation.client_ids]
    tau_eff = sum(n * tau for n, tau in zip(SIZES, STEPS, strict=True)) / sum(SIZES)
    found = play(FedNova(local), federation, tmp_path / "nova").server.model
    assert_close(found, moved(initial(federation), models, STEPS, SIZES, tau_eff))
    plain = play(FedAvg(local), federation, tmp_path / "plain").server.model
    assert (found - plain).norm() > 1e-3


def test_momentum_counts_early_gradients_more_often(tmp_path):
    """In three steps with momentum 0.5 gradients count 1.75, 1.5 and 1 times."""
    federation = three_clients()
    local = LocalTraining(lr=LR, batch=BATCH, momentum=0.5)
    models = [trained_by_fedavg(federation, local, tmp_path, c) for c in federation.client_ids]
    counts = (1.5 + 1, 1.5 + 1, 1.75 + 1.5 + 1)
    tau_eff = sum(n * a for n, a in zip(SIZES, counts, strict=True)) / sum(SIZES)
    found = play(FedNova(local), federation, tmp_path / "nova").server.model
    assert_close(found, moved(initial(federation), models, counts, SIZES, tau_eff))


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.9])
def test_the_count_is_the_closed_form_of_the_paper(momentum):
    algorithm = FedNova(LocalTraining(momentum=momentum))
    for tau in range(8):
        expected = (tau - momentum * (1 - momentum**tau) / (1 - momentum)) / (1 - momentum)
        assert abs(algorithm.a(tau) - expected) < 1e-9


def test_with_equally_many_steps_it_is_fedavg(tmp_path):
    federation = three_clients()
    local = LocalTraining(epochs=3, lr=LR)
    nova = play(FedNova(local), federation, tmp_path / "nova", rounds=2)
    trained = play(FedAvg(local), federation, tmp_path / "plain", rounds=2)
    assert_close(nova.server.model, trained.server.model)
    by_hand = [
        descend(initial(federation), federation.data(c).train, LR, 3) for c in federation.client_ids
    ]
    once = play(FedNova(local), federation, tmp_path / "once").server.model
    assert_close(once, average(by_hand, SIZES))


def test_more_steps_of_one_client_do_not_shift_the_optimum(tmp_path):
    """Twenty steps against one: FedAvg ends near the busy client's optimum, FedNova does not."""
    busy, calm = quadratic_member(1, 40), quadratic_member(2, 40)
    federation = Federation({"busy": replace(busy, local={"epochs": 20}), "calm": calm})
    parts = [Quadratic.of(member) for member in (busy, calm)]
    both = sum(part.hessian for part in parts)
    best = torch.linalg.solve(both, sum(part.hessian @ part.best for part in parts))
    errors = {}
    for kind in (FedNova, FedAvg):
        algorithm = kind(LocalTraining(lr=0.002, batch=40))
        folder = tmp_path / kind.__name__
        outcome = play(algorithm, federation, folder, rounds=400, evaluate_every=0)
        found = outcome.server.model["heads.fit.weight"][0].double()
        errors[kind] = float((found - best).norm())
    assert errors[FedNova] < 0.1 * errors[FedAvg]


@pytest.mark.parametrize("settings", [{"optimizer": "adam"}, {"weight_decay": 0.1}])
def test_only_steps_of_sgd_can_be_counted(settings):
    with pytest.raises(UsageError, match=r"fednova .* local\.optimizer = 'sgd'"):
        FedNova(LocalTraining(**settings))
