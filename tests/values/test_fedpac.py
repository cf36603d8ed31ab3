from __future__ import annotations

import itertools

import torch
from tests.values.by_hand import (
    ENCODER,
    HEAD,
    SIZES,
    B,
    W,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    initial,
    loss,
    play,
    scores,
    three_clients,
)
from torch.nn import functional as F

from consort.algorithms.fedpac import FedPAC, mixtures
from consort.training.local import LocalTraining

STEPS, LR, LAMBDA = 2, 0.2, 3.0
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def features(weights, examples):
    return F.relu(examples.inputs @ weights[W].T + weights[B])


def statistics(weights, examples):
    """The authors' formulas: h_k = p_k mu_k, and V with traces of second moments."""
    z, y = features(weights, examples), examples.targets["classify"]
    h, V = torch.zeros(3, z.shape[1]), 0.0
    for k in range(3):
        z_k = z[y == k]
        if len(z_k):
            p, mu = len(z_k) / len(z), z_k.mean(0)
            h[k] = p * mu
            V += float(p * torch.trace(z_k.T @ z_k / len(z_k)) - p**2 * mu @ mu)
    return h, V / len(z)


def centroids_of(weights, examples):
    z, y = features(weights, examples), examples.targets["classify"]
    return {k: (int((y == k).sum()), z[y == k].mean(0)) for k in sorted(set(y.tolist()))}


def form(h, V, i):
    """The quadratic form of client i, one entry after the other."""
    n = len(h)
    P = torch.diag(torch.tensor(V, dtype=torch.float64))
    for j, m in itertools.product(range(n), range(n)):
        P[j, m] += float(((h[i] - h[j]).double() * (h[i] - h[m]).double()).sum())
    return P


def best_on_a_grid(P, steps=100):
    """The smallest value of aᵀPa over a grid of the simplex of three."""
    grid = [
        torch.tensor([a, b, steps - a - b], dtype=torch.float64) / steps
        for a in range(steps + 1)
        for b in range(steps + 1 - a)
    ]
    return min(float(a @ P @ a) for a in grid)


def trained(model, centroids, examples):
    model = descend(model, examples, LR, 1, moving=HEAD)
    targets = examples.targets["classify"]
    for _ in range(STEPS):
        leaves = {n: t.clone().requires_grad_() for n, t in model.items()}
        total = loss(leaves, examples)
        if centroids:
            goals = torch.stack([centroids[k] for k in targets.tolist()])
            total = total + LAMBDA * (features(leaves, examples) - goals).square().mean()
        total.backward()
        model = model | {n: model[n] - LR * leaves[n].grad for n in ENCODER}
    return model


def test_rounds_follow_the_paper(tmp_path):
    federation = three_clients()
    outcome = play(FedPAC(LOCAL, LAMBDA), federation, tmp_path, rounds=2)
    start = initial(federation)
    encoder = {n: start[n] for n in ENCODER}
    heads = {c: {n: start[n] for n in HEAD} for c in federation.client_ids}
    centroids = {}
    for round_ in (1, 2):
        told = {c: statistics(encoder, federation.data(c).train) for c in heads}
        models = {
            c: trained(encoder | heads[c], centroids, federation.data(c).train) for c in heads
        }
        encoder = average([{n: m[n] for n in ENCODER} for m in models.values()], SIZES)
        sent = [centroids_of(models[c], federation.data(c).train) for c in heads]
        centroids = {
            k: sum(own[k][0] * own[k][1] for own in sent if k in own)
            / sum(own[k][0] for own in sent if k in own)
            for k in range(3)
        }
        h, V = ([part[i] for part in told.values()] for i in (0, 1))
        for i, client in enumerate(heads):
            P = form(h, V, i)
            alpha = mixtures([dict(enumerate(one)) for one in h], V)[i]
            assert float(alpha @ P @ alpha) <= best_on_a_grid(P) + 1e-9
            heads[client] = average([{n: m[n] for n in HEAD} for m in models.values()], alpha)
        personal = {c: encoder | head for c, head in heads.items()}
        assert_scores(scores(outcome, "personal", round_), federation, personal)
    assert_close(outcome.server.encoder, encoder)
    for k, centroid in centroids.items():
        torch.testing.assert_close(
            outcome.server.centroids["classify"][k], centroid, atol=2e-6, rtol=0
        )
    for client, head in heads.items():
        assert_close(outcome.server.heads[client], head)
    assert distance(heads["c0"], heads["c1"]) > 1e-4


def test_the_weights_are_the_minimum_over_the_simplex():
    generator = torch.Generator().manual_seed(3)
    h = [torch.randn(2, 3, generator=generator) for _ in range(3)]
    V = [0.5, 2.0, 0.1]
    found = mixtures([dict(enumerate(one)) for one in h], V)
    for i, alpha in enumerate(found):
        P = form(h, V, i)
        value = float(alpha @ P @ alpha)
        assert value <= best_on_a_grid(P) + 1e-9
        assert value > best_on_a_grid(P) - 1e-2
        assert abs(float(alpha.sum()) - 1) < 1e-9
        assert float(alpha.min()) >= 0


def test_alike_clients_are_weighted_by_their_variance():
    """With equal h only the variances count: alpha_j is proportional to 1 / V_j."""
    same = {0: torch.tensor([1.0, 2.0])}
    for alpha in mixtures([same, same, same], [1.0, 2.0, 4.0]):
        torch.testing.assert_close(alpha, torch.tensor([4.0, 2.0, 1.0]).double() / 7)


def test_clients_that_are_far_apart_keep_their_own_heads():
    far = [{0: torch.tensor([1e3, 0.0])}, {1: torch.tensor([0.0, 1e3])}, {2: torch.ones(2) * 1e3}]
    for i, alpha in enumerate(mixtures(far, [1.0, 1.0, 1.0])):
        assert float(alpha[i]) > 0.999


def test_a_client_that_has_not_answered_gets_the_mean_head(tmp_path):
    federation = three_clients()
    outcome = play(FedPAC(LOCAL), federation, tmp_path, participation=0.3)
    (trained_one,) = outcome.server.heads
    own = outcome.server.heads[trained_one]
    assert_close(own, outcome.server.head)
    model = outcome.server.encoder | outcome.server.head
    everybody = dict.fromkeys(federation.client_ids, model)
    assert_scores(scores(outcome, "personal", 1), federation, everybody)
