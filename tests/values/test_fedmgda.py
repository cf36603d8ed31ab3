from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from scipy.optimize import minimize
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    assert_close,
    average,
    descend,
    distance,
    initial,
    play,
    quadratic_member,
    three_clients,
)

from consort.algorithms.fedmgda import FedMGDA
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

STEPS, LR = 2, 0.2
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def flat(weights):
    return torch.cat([tensor.flatten().double() for tensor in weights.values()])


def shortest(vectors, shares, epsilon):
    """Weights by a general solver."""
    inner = (vectors @ vectors.T).numpy()
    found = minimize(
        lambda w: w @ inner @ w,
        shares,
        jac=lambda w: 2 * inner @ w,
        bounds=[(max(0, p - epsilon), min(1, p + epsilon)) for p in shares],
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return found.x.tolist()


def by_hand(federation, cohorts, epsilon, rate):
    sizes = dict(zip(federation.client_ids, SIZES, strict=True))
    w = initial(federation)
    for present in cohorts:
        shares = torch.tensor([float(sizes[client]) for client in present]).double()
        trained = [descend(w, federation.data(c).train, LR, STEPS) for c in present]
        moves = [{n: model[n] - w[n] for n in w} for model in trained]
        lengths = [float(flat(move).norm()) for move in moves]
        unit = torch.stack([flat(m) / s for m, s in zip(moves, lengths, strict=True)])
        weights = shortest(unit, (shares / shares.sum()).numpy(), epsilon)
        for move, length, weight in zip(moves, lengths, weights, strict=True):
            w = {n: w[n] + rate * weight * move[n] / length for n in w}
    return w


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(epsilon, share, tmp_path):
    federation = three_clients()
    cohorts = [cohort(federation.client_ids, share, 0, round_) for round_ in (1, 2)]
    algorithm = FedMGDA(LOCAL, epsilon=epsilon, server_lr=0.3)
    outcome = play(algorithm, federation, tmp_path, rounds=2, participation=share)
    assert distance(outcome.server.model, by_hand(federation, cohorts, epsilon, 0.3)) < 2e-5


def first_step(algorithm, federation):
    exchanges, servers = overhear(algorithm, federation, rounds=1)
    updates = [e.reply.content["update"] for e in exchanges if not e.call.evaluation]
    return servers[1].model - servers[0].model, updates


def test_with_no_freedom_the_direction_is_that_of_normalised_fedavg():
    step, updates = first_step(FedMGDA(LOCAL, epsilon=0.0, server_lr=0.5), three_clients())
    units = [update / update.norm() for update in updates]
    assert_close(step, average([unit * 0.5 for unit in units], SIZES))


def test_with_all_freedom_no_client_is_harmed():
    step, updates = first_step(FedMGDA(LOCAL, epsilon=1.0), three_clients())
    inner = [step.dot(update) / update.norm() for update in updates]
    assert min(inner) > step.norm() ** 2 - 1e-6
    assert step.norm() < 1.0


def opposed():
    """Two clients of which the bigger one pulls the mean against the smaller one."""
    big, small = quadratic_member(1, 30), quadratic_member(1, 3)
    theirs, own = big.load().train, small.load().train
    own.inputs.copy_(theirs.inputs[:3])
    own.targets["fit"].copy_(-theirs.targets["fit"][:3])
    return Federation({"big": big, "small": small})


def test_the_mean_may_harm_a_client_where_the_shortest_mixture_does_not():
    federation = opposed()
    mean, updates = first_step(FedMGDA(LOCAL, epsilon=0.0), federation)
    fair, _ = first_step(FedMGDA(LOCAL, epsilon=1.0), federation)
    assert mean.dot(updates[1]) < 0
    assert all(fair.dot(update) > 0 for update in updates)


def test_lone_clients_take_steps_of_the_servers_rate():
    federation = Federation({"alone": quadratic_member(1, 30)})
    for rate in (0.1, 2.0):
        step, _ = first_step(FedMGDA(LOCAL, server_lr=rate), federation)
        assert abs(step.norm() - rate) < 1e-6


def test_clients_that_do_not_move_stay_where_they_are():
    federation = three_clients()
    step, _ = first_step(FedMGDA(LocalTraining(lr=0.0)), federation)
    assert step.norm() == 0


def test_a_client_whose_data_vanished_has_no_say():
    """It does not move, so the shortest mixture would be all its own."""
    members = three_clients().members
    splits = members["c2"].load()
    nobody = replace(splits, train=splits.train.take(torch.zeros(0, dtype=torch.int64)))
    vanished = replace(members["c2"], load=lambda: nobody)
    algorithm = FedMGDA(LOCAL, epsilon=1.0)
    step, _ = first_step(algorithm, Federation(members | {"c2": vanished}))
    others = {client: members[client] for client in ("c0", "c1")}
    assert_close(step, first_step(algorithm, Federation(others))[0])
    assert step.norm() > 0.1


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_have_the_weights_of_the_parameters():
    federation = tiny_federation(3, model={"name": "normed"})
    exchanges, servers = overhear(FedMGDA(LOCAL, epsilon=1.0), federation, rounds=1)
    updates = [e.reply.content["update"] for e in exchanges if not e.call.evaluation]
    units = torch.stack(
        [flat(u.without("buffers")) / flat(u.without("buffers")).norm() for u in updates]
    )
    weights = shortest(units, [1 / 3] * 3, 1.0)
    statistics = servers[0].model.only("buffers")
    expected = average([statistics + u.only("buffers") for u in updates], weights)
    assert len(expected) == 2
    assert distance(servers[1].model.only("buffers"), expected) < 1e-4
    assert distance(servers[1].model.only("buffers"), statistics) > 0.01


@pytest.mark.parametrize("settings", [{"epsilon": 1.5}, {"epsilon": -0.1}, {"server_lr": 0.0}])
def test_impossible_settings_are_refused_in_recipes(settings):
    with pytest.raises(ValidationError):
        TypeAdapter(FedMGDA).validate_python(settings)
