from __future__ import annotations

import pytest
import torch
from tests.values.by_hand import (
    Quadratic,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    gradient,
    initial,
    loss,
    play,
    quadratic_member,
    scores,
    three_clients,
)

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.per_fedavg import PerFedAvg
from consort.federation.federation import Federation
from consort.training.local import LocalTraining

STEPS, BETA = 3, 0.2
LOCAL = LocalTraining(epochs=STEPS, lr=BETA)


def first_order(w, examples, alpha):
    """Algorithm 1 with the approximation FO; all three batches are all examples."""
    for _ in range(STEPS):
        g = gradient(descend(w, examples, alpha, 1), examples)
        w = {n: w[n] - BETA * g[n] for n in w}
    return w


def hessian_vector(w, vector, examples):
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in w.items()}
    first = torch.autograd.grad(loss(leaves, examples), leaves.values(), create_graph=True)
    along = sum((g * vector[n]).sum() for n, g in zip(leaves, first, strict=True))
    return dict(zip(leaves, torch.autograd.grad(along, leaves.values()), strict=True))


def exact(w, examples, alpha):
    """w -= beta (I - alpha ∇²f(w)) ∇f(w - alpha ∇f(w)), with the Hessian itself."""
    for _ in range(STEPS):
        g = gradient(descend(w, examples, alpha, 1), examples)
        Hg = hessian_vector(w, g, examples)
        w = {n: w[n] - BETA * (g[n] - alpha * Hg[n]) for n in w}
    return w


@pytest.mark.parametrize("alpha", [0.01, 0.5])
def test_the_first_order_approximation_follows_the_paper(alpha, tmp_path):
    federation = three_clients()
    w = initial(federation)
    for _ in range(2):
        parts = [first_order(w, federation.data(c).train, alpha) for c in federation.client_ids]
        w = average(parts, [1, 1, 1])
    outcome = play(PerFedAvg(LOCAL, alpha), federation, tmp_path, rounds=2)
    assert_close(outcome.server.model, w)
    tuned = {c: descend(w, federation.data(c).train, alpha, 1) for c in federation.client_ids}
    assert_scores(scores(outcome, "tuned", 2), federation, tuned)
    assert_scores(scores(outcome, "global", 2), federation, dict.fromkeys(tuned, w))


def test_without_hessian_the_step_is_that_with_the_exact_one(tmp_path):
    federation = three_clients()
    w, alpha = initial(federation), 0.5
    parts = [exact(w, federation.data(c).train, alpha) for c in federation.client_ids]
    local = LocalTraining(epochs=STEPS, lr=BETA)
    free = play(PerFedAvg(local, alpha, "hessian_free"), federation, tmp_path / "free")
    simple = play(PerFedAvg(local, alpha), federation, tmp_path / "simple")
    expected = average(parts, [1, 1, 1])
    assert distance(free.server.model, expected) < 1e-4
    assert distance(simple.server.model, expected) > 1e-3


def test_with_a_tiny_inner_step_it_is_unweighted_fedavg(tmp_path):
    federation = three_clients()
    trained = [
        descend(initial(federation), federation.data(c).train, BETA, STEPS)
        for c in federation.client_ids
    ]
    found = play(PerFedAvg(LOCAL, alpha=1e-9), federation, tmp_path).server.model
    assert_close(found, average(trained, [1, 1, 1]))


def test_on_quadratics_it_ends_at_the_minimum_of_the_losses_after_one_step(tmp_path):
    """½ (w - b)ᵀ A H A (w - b) with A = I - alpha H is the loss after a step."""
    members = {"a": quadratic_member(1, 20), "b": quadratic_member(2, 20)}
    parts, alpha = [Quadratic.of(member) for member in members.values()], 0.3
    meta = [p.shrinkage(alpha, 1) @ p.hessian @ p.shrinkage(alpha, 1) for p in parts]
    best = torch.linalg.solve(sum(meta), sum(m @ p.best for m, p in zip(meta, parts, strict=True)))
    local = LocalTraining(lr=0.1, batch=20)
    algorithm = PerFedAvg(local, alpha, "hessian_free", delta=0.1)
    federation = Federation(members)
    found = play(algorithm, federation, tmp_path / "meta", rounds=200, evaluate_every=0)
    plain = play(FedAvg(local), federation, tmp_path / "plain", rounds=200, evaluate_every=0)
    weights = [o.server.model["heads.fit.weight"][0].double() for o in (found, plain)]
    torch.testing.assert_close(weights[0], best, atol=1e-3, rtol=0)
    assert float((weights[1] - best).norm()) > 0.01


def test_batches_of_one_step_are_drawn_independently(tmp_path):
    """With small batches the two gradients of a step come from different examples."""
    federation = three_clients()
    local = LocalTraining(lr=BETA, batch=4, steps=1)
    (client,) = ("c2",)
    alone = Federation({client: federation.members[client]})
    w, train = initial(federation), federation.data(client).train
    found = play(PerFedAvg(local, alpha=0.5), alone, tmp_path).server.model
    same_batch = play(FedAvg(local), alone, tmp_path / "one").server.model
    assert distance(found, same_batch) > 1e-3
    every = descend(w, train, BETA, 1)
    assert distance(found, every) > 1e-3
