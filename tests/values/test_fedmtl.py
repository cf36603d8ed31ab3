from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    Quadratic,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    initial,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.algorithms.fedmtl import FedMTL
from consort.algorithms.local_only import LocalOnly
from consort.core.params import Params
from consort.core.wire import encode
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=3, lr=0.2)
FIT = "heads.fit.weight"


@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
def test_rounds_follow_the_penalised_loss(share, tmp_path):
    federation = three_clients()
    algorithm = FedMTL(LOCAL, lambda1=0.3, lambda2=0.05)
    outcome = play(algorithm, federation, tmp_path, rounds=4, participation=share)
    mean, own = initial(federation), {}
    for round_ in (1, 2, 3, 4):

        def slope(name, value, mean=mean):
            return 2 * 0.3 * (value - mean[name]) + 2 * 0.05 * value

        for client in cohort(federation.client_ids, share, 0, round_):
            train = federation.data(client).train
            own[client] = descend(own.get(client, mean), train, 0.2, 3, extra=slope)
        mean = average(list(own.values()), [1] * len(own))
        tested = {client: own.get(client, mean) for client in federation.client_ids}
        assert_scores(scores(outcome, "personal", round_), federation, tested)
    assert_close(outcome.server.mean, mean)
    assert outcome.server.models.keys() == own.keys()
    for client, model in own.items():
        assert_close(outcome.states[client]["model"], model)
        assert_close(outcome.server.models[client], model)


@given(st.floats(0, 3), st.floats(0, 3), st.integers(0, 99))
def test_the_penalty_has_the_gradient_that_autograd_finds(lambda1, lambda2, seed):
    generator = torch.Generator().manual_seed(seed)
    value, mean, slope = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    leaf = value.clone().requires_grad_()
    (lambda1 * (leaf - mean).square().sum() + lambda2 * leaf.square().sum()).backward()
    adjust = FedMTL(lambda1=lambda1, lambda2=lambda2).penalty(Params({"encoder.w": mean}))
    (found,) = adjust(["encoder.w"], [value], [slope])
    torch.testing.assert_close(found, slope + leaf.grad)


def test_the_penalty_moves_the_models_that_training_alone_would_find(tmp_path):
    federation = three_clients()
    alone = play(LocalOnly(LOCAL), federation, tmp_path / "alone", rounds=3)
    free = play(FedMTL(LOCAL, 0.0, 0.0), federation, tmp_path / "free", rounds=3)
    default = play(FedMTL(LOCAL), federation, tmp_path / "default", rounds=3)
    near = play(FedMTL(LOCAL, 0.5, 0.0), federation, tmp_path / "near", rounds=3)
    small = play(FedMTL(LOCAL, 0.0, 0.1), federation, tmp_path / "small", rounds=3)
    for client in federation.client_ids:
        model = alone.states[client]["model"]
        assert encode(free.states[client]["model"]) == encode(model)
        assert distance(default.states[client]["model"], model) > 1e-4
        assert small.states[client]["model"].norm() < model.norm() - 0.05
    spread = [
        sum((model - run.server.mean).norm() for model in run.server.models.values())
        for run in (near, free)
    ]
    assert spread[0] < 0.7 * spread[1]


def test_a_long_round_ends_at_the_minimum_of_a_penalised_quadratic(tmp_path):
    members = {"a": quadratic_member(1, 30), "b": quadratic_member(2, 30)}
    federation = Federation(members)
    received = federation.roster.model("a")[FIT][0].double()
    algorithm = FedMTL(LocalTraining(epochs=400, lr=0.1), lambda1=0.3, lambda2=0.1)
    outcome = play(algorithm, federation, tmp_path)
    for client, member in members.items():
        origin = torch.zeros(3).double()
        expected = Quadratic.of(member).pulled(received, 2 * 0.3).pulled(origin, 2 * 0.1).best
        found = outcome.states[client]["model"][FIT][0].double()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_rounds_end_at_the_minimum_of_the_joint_objective(tmp_path):
    """sum L_i(w_i) + lambda1 sum ||w_i - mean||² + lambda2 sum ||w_i||²: a linear system."""
    members = {name: quadratic_member(seed, 30) for seed, name in enumerate("abc")}
    parts = [Quadratic.of(member) for member in members.values()]
    lambda1, lambda2 = 0.2, 0.05
    eye = torch.eye(3).double()
    coupling = torch.kron(eye - 1 / 3, eye)  # (I - 11ᵀ/m), here with three clients in 3-d
    system = torch.block_diag(*(part.hessian for part in parts))
    system += 2 * lambda1 * coupling + 2 * lambda2 * torch.eye(9).double()
    expected = torch.linalg.solve(system, torch.cat([part.hessian @ part.best for part in parts]))
    algorithm = FedMTL(LocalTraining(epochs=3, lr=0.2), lambda1, lambda2)
    outcome = play(algorithm, Federation(members), tmp_path, rounds=80, evaluate_every=0)
    found = torch.cat([outcome.states[client]["model"][FIT][0] for client in members])
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_are_averaged_but_not_pulled(tmp_path):
    federation = tiny_federation(3, model={"name": "normed"})
    still = LocalTraining(lr=0.0)
    outcome = play(FedMTL(still, lambda1=50.0, lambda2=50.0), federation, tmp_path / "mtl")
    alone = play(LocalOnly(still), federation, tmp_path / "alone")
    statistics = []
    for client in federation.client_ids:
        assert encode(outcome.states[client]["model"]) == encode(alone.states[client]["model"])
        statistics.append(alone.states[client]["model"].only("buffers"))
    assert_close(outcome.server.mean.only("buffers"), average(statistics, [1, 1, 1]))
    assert distance(statistics[0], statistics[1]) > 1e-3
