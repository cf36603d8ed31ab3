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

from consort.algorithms.feddyn import FedDyn
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

STEPS, LR = 3, 0.2
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def zeros(weights):
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def by_hand(federation, cohorts, alpha):
    """Algorithm 1 of the paper, letter by letter; g_k is the gradient that client k remembers."""
    theta = initial(federation)
    h, m = zeros(theta), len(federation.client_ids)
    g = {k: zeros(theta) for k in federation.client_ids}
    for P in cohorts:
        theta_k = {}
        for k in P:
            train = federation.data(k).train

            def extra(n, value, k=k, theta=theta):
                return -g[k][n] + alpha * (value - theta[n])

            theta_k[k] = descend(theta, train, LR, STEPS, extra=extra)
            g[k] = {n: g[k][n] - alpha * (theta_k[k][n] - theta[n]) for n in theta}
        h = {n: h[n] - alpha / m * sum(theta_k[k][n] - theta[n] for k in P) for n in theta}
        mean = average(list(theta_k.values()), [1] * len(P))
        theta = {n: mean[n] - h[n] / alpha for n in theta}
    return theta, h, g


@pytest.mark.parametrize("alpha", [0.01, 0.5])
@pytest.mark.parametrize("share", [1.0, 0.7, 0.3])
def test_rounds_with_some_of_the_clients_follow_the_paper(share, alpha, tmp_path):
    federation = three_clients()
    cohorts = [cohort(federation.client_ids, share, 0, round_) for round_ in (1, 2, 3)]
    theta, h, g = by_hand(federation, cohorts, alpha)
    outcome = play(FedDyn(LOCAL, alpha), federation, tmp_path, rounds=3, participation=share)
    assert distance(outcome.server.model, theta) < 1e-5
    assert_close(outcome.server.h, h)
    for client, state in outcome.states.items():
        assert_close(state.get("gradient", zeros(theta)), g[client])


def test_unlike_quadratics_are_solved_exactly(tmp_path):
    """Where FedAvg with many local steps goes astray: see the test of SCAFFOLD."""
    members = {"a": quadratic_member(1, 20), "b": quadratic_member(2, 20)}
    parts = [Quadratic.of(member) for member in members.values()]
    hessian = sum(part.hessian for part in parts)
    best = torch.linalg.solve(hessian, sum(part.hessian @ part.best for part in parts))
    algorithm = FedDyn(LocalTraining(epochs=60, lr=0.1), alpha=1.0)
    outcome = play(algorithm, Federation(members), tmp_path, rounds=60, evaluate_every=0)
    found = outcome.server.model["heads.fit.weight"][0].double()
    torch.testing.assert_close(found, best, atol=1e-4, rtol=0)
    for client, part in zip(members, parts, strict=True):
        slope = part.hessian @ (best - part.best)
        kept = outcome.states[client]["gradient"]["heads.fit.weight"][0].double()
        torch.testing.assert_close(kept, slope, atol=1e-3, rtol=0)
