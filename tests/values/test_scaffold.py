from __future__ import annotations

import pytest
import torch
from tests.values.by_hand import (
    Quadratic,
    assert_close,
    average,
    descend,
    distance,
    initial,
    play,
    quadratic_member,
    three_clients,
)

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.scaffold import Scaffold
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

STEPS, LR = 3, 0.2
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def zeros(weights):
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def by_hand(federation, cohorts, lr=LR):
    """Algorithm 1 of the paper, letter by letter; c is the server's control, c_i the clients'."""
    x = initial(federation)
    c = zeros(x)
    c_i = {client: zeros(x) for client in federation.client_ids}
    for present in cohorts:
        moves, changes = [], []
        for client in present:
            train = federation.data(client).train
            own = c_i[client]
            y = descend(x, train, lr, STEPS, extra=lambda n, _: c[n] - own[n])  # noqa: B023
            new = {n: own[n] - c[n] + (x[n] - y[n]) / (STEPS * lr) for n in x}
            moves.append({n: y[n] - x[n] for n in x})
            changes.append({n: new[n] - own[n] for n in x})
            c_i[client] = new
        share = len(present) / len(federation.client_ids)
        move, change = (average(parts, [1] * len(present)) for parts in (moves, changes))
        x = {n: x[n] + move[n] for n in x}
        c = {n: c[n] + share * change[n] for n in x}
    return x, c, c_i


@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
def test_rounds_with_some_of_the_clients_follow_the_paper(share, tmp_path):
    federation = three_clients()
    cohorts = [cohort(federation.client_ids, share, 0, round_) for round_ in (1, 2, 3)]
    x, c, c_i = by_hand(federation, cohorts)
    outcome = play(Scaffold(LOCAL), federation, tmp_path, rounds=3, participation=share)
    assert_close(outcome.server.model, x)
    assert distance(outcome.server.control, c) < 1e-5
    for client, state in outcome.states.items():
        assert distance(state.get("control", zeros(x)), c_i[client]) < 1e-5


@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
def test_the_control_of_the_server_is_the_mean_of_all_clients(share, tmp_path):
    federation = three_clients()
    outcome = play(Scaffold(LOCAL), federation, tmp_path, rounds=4, participation=share)
    nothing = zeros(outcome.server.control)
    controls = [dict(state.get("control", nothing)) for state in outcome.states.values()]
    assert distance(outcome.server.control, average(controls, [1, 1, 1])) < 1e-6
    assert distance(outcome.server.control, nothing) > 0.01


def test_the_first_round_is_an_unweighted_fedavg(tmp_path):
    federation = three_clients()
    trained = [
        descend(initial(federation), federation.data(c).train, LR, STEPS)
        for c in federation.client_ids
    ]
    found = play(Scaffold(LOCAL), federation, tmp_path).server.model
    assert_close(found, average(trained, [1, 1, 1]))


def test_a_control_is_the_mean_gradient_along_the_way(tmp_path):
    """With one step, option II is the gradient at the model that was received."""
    federation = three_clients()
    start = initial(federation)
    outcome = play(Scaffold(LocalTraining(lr=LR)), federation, tmp_path)
    for client in federation.client_ids:
        one_step = descend(start, federation.data(client).train, 1.0, 1)
        slope = {name: start[name] - one_step[name] for name in start}
        assert distance(outcome.states[client]["control"], slope) < 1e-5


def test_the_rate_of_the_round_is_what_the_path_is_divided_by(tmp_path):
    """After warming up at half the rate, the control is still a gradient, not half of one."""
    federation = three_clients()
    local = LocalTraining(epochs=STEPS, lr=LR, warmup=1)
    _, c, _ = by_hand(federation, [federation.client_ids], lr=LR / 2)
    outcome = play(Scaffold(local), federation, tmp_path)
    assert distance(outcome.server.control, c) < 1e-5


def test_identical_clients_do_not_drift(tmp_path):
    member = three_clients().members["c0"]
    federation = Federation({"a": member, "b": member, "c": member})
    corrected = play(Scaffold(LOCAL), federation, tmp_path / "scaffold", rounds=4)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "fedavg", rounds=4)
    assert distance(corrected.server.model, plain.server.model) < 1e-5
    for state in corrected.states.values():
        assert distance(state["control"], corrected.server.control) < 1e-5


def test_unlike_quadratics_are_solved_exactly_where_fedavg_goes_astray(tmp_path):
    """With K local steps FedAvg ends where the mean of (1 - lr H)^K (w - best) vanishes."""
    members = {"a": quadratic_member(1, 20), "b": quadratic_member(2, 20)}
    federation = Federation(members)
    parts = [Quadratic.of(member) for member in members.values()]
    reach = [torch.eye(3) - part.shrinkage(0.1, 10) for part in parts]
    best, astray = (
        torch.linalg.solve(
            sum(weights), sum(w @ q.best for w, q in zip(weights, parts, strict=True))
        )
        for weights in ([part.hessian for part in parts], reach)
    )
    assert float((best - astray).norm()) > 0.005
    local = LocalTraining(epochs=10, lr=0.1)
    for algorithm, expected in ((Scaffold(local), best), (FedAvg(local), astray)):
        folder = tmp_path / type(algorithm).__name__
        model = play(algorithm, federation, folder, rounds=60, evaluate_every=0).server.model
        found = model["heads.fit.weight"][0].double()
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "settings", [{"optimizer": "adam"}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"clip": 1.0}]
)
def test_only_plain_steps_have_control_variates(settings):
    with pytest.raises(UsageError, match=r"from plain SGD steps: set local\.optimizer = 'sgd'"):
        Scaffold(LocalTraining(**settings))
