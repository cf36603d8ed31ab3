from __future__ import annotations

import pytest
import torch
from tests.values.by_hand import (
    Quadratic,
    assert_close,
    assert_scores,
    average,
    gradient,
    initial,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.algorithms.pfedme import PFedMe
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

R, ETA = 3, 0.02
LOCAL = LocalTraining(epochs=R, lr=ETA)


def by_hand(w, examples, lam, K, lr):
    """The client's part of Algorithm 1, on all examples in every local round."""
    w, theta = dict(w), dict(w)
    for _ in range(R):
        for _ in range(K):
            g = gradient(theta, examples)
            theta = {n: theta[n] - lr * (g[n] + lam * (theta[n] - w[n])) for n in w}
        w = {n: w[n] - ETA * lam * (w[n] - theta[n]) for n in w}
    return w, theta


@pytest.mark.parametrize("beta", [1.0, 1.5])
@pytest.mark.parametrize(("lam", "K", "lr"), [(15.0, 5, 0.05), (2.0, 2, 0.2)])
def test_rounds_follow_the_paper(beta, lam, K, lr, tmp_path):
    federation = three_clients()
    algorithm = PFedMe(LOCAL, strength=lam, inner_steps=K, personal_lr=lr, beta=beta)
    outcome = play(algorithm, federation, tmp_path, rounds=2)
    w = initial(federation)
    for round_ in (1, 2):
        parts = {
            client: by_hand(w, federation.data(client).train, lam, K, lr)
            for client in federation.client_ids
        }
        mean = average([w_i for w_i, _ in parts.values()], [1, 1, 1])
        w = {n: (1 - beta) * w[n] + beta * mean[n] for n in w}
        personal = {client: theta for client, (_, theta) in parts.items()}
        assert_scores(scores(outcome, "personal", round_), federation, personal)
        assert_scores(scores(outcome, "global", round_), federation, dict.fromkeys(personal, w))
    assert_close(outcome.server.model, w)
    for client, theta in personal.items():
        assert_close(outcome.states[client]["personal"], theta)


def test_on_quadratics_it_ends_at_the_minimum_of_the_envelopes(tmp_path):
    """The envelope of ½ (w - b)ᵀ H (w - b) is such a quadratic with λ H (H + λ)⁻¹."""
    members = {"a": quadratic_member(1, 20), "b": quadratic_member(2, 20)}
    lam, eye = 3.0, torch.eye(3).double()
    parts = [Quadratic.of(member) for member in members.values()]
    bowls = [lam * part.hessian @ torch.linalg.inv(part.hessian + lam * eye) for part in parts]
    w = torch.linalg.solve(
        sum(bowls), sum(bowl @ part.best for bowl, part in zip(bowls, parts, strict=True))
    )
    algorithm = PFedMe(
        LocalTraining(lr=0.1, batch=20), strength=lam, inner_steps=40, personal_lr=0.15
    )
    outcome = play(algorithm, Federation(members), tmp_path, rounds=150, evaluate_every=0)
    found = outcome.server.model["heads.fit.weight"][0].double()
    torch.testing.assert_close(found, w, atol=1e-4, rtol=0)
    for client, part in zip(members, parts, strict=True):
        own = outcome.states[client]["personal"]["heads.fit.weight"][0].double()
        torch.testing.assert_close(own, part.pulled(w, lam).best, atol=1e-3, rtol=0)


def test_a_client_that_has_not_trained_is_tested_with_the_global_model(tmp_path):
    federation = three_clients()
    outcome = play(PFedMe(LOCAL), federation, tmp_path, participation=0.3)
    (trained,) = [client for client, state in outcome.states.items() if state]
    personal, shared = (scores(outcome, model, 1) for model in ("personal", "global"))
    assert {c for c in personal if personal[c] != shared[c]} == {trained}
