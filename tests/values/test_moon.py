from __future__ import annotations

import math

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    B,
    W,
    assert_close,
    average,
    distance,
    initial,
    loss,
    play,
    three_clients,
)
from torch.nn import functional as F

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.moon import Moon
from consort.training.local import LocalTraining

STEPS, LR = 3, 0.2
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def features(weights, examples):
    return F.relu(examples.inputs @ weights[W].T + weights[B])


def contrast(z, z_glob, z_prev, tau):
    """The formula of the paper, one example after the other."""
    terms = []
    for one, glob, prev in zip(z, z_glob, z_prev, strict=True):
        near = torch.exp(torch.cosine_similarity(one, glob, dim=0) / tau)
        far = torch.exp(torch.cosine_similarity(one, prev, dim=0) / tau)
        terms.append(-torch.log(near / (near + far)))
    return torch.stack(terms).mean()


def trained(received, previous, examples, mu, tau):
    """Steps on cross entropy plus mu times the contrast, in plain PyTorch."""
    weights = dict(received)
    z_glob, z_prev = features(received, examples), features(previous, examples)
    for _ in range(STEPS):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        extra = contrast(features(leaves, examples), z_glob, z_prev, tau)
        (loss(leaves, examples) + mu * extra).backward()
        weights = {name: weights[name] - LR * leaf.grad for name, leaf in leaves.items()}
    return weights


@pytest.mark.parametrize(("mu", "tau"), [(1.0, 0.5), (5.0, 2.0)])
def test_rounds_follow_the_paper(mu, tau, tmp_path):
    federation = three_clients()
    model = initial(federation)
    previous = dict.fromkeys(federation.client_ids, model)
    for _ in range(3):
        for client in previous:
            examples = federation.data(client).train
            previous[client] = trained(model, previous[client], examples, mu, tau)
        model = average(list(previous.values()), SIZES)
    outcome = play(Moon(LOCAL, mu, tau), federation, tmp_path / "moon", rounds=3)
    assert_close(outcome.server.model, model)
    for client, own in previous.items():
        assert_close(outcome.states[client]["previous"], own)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=3)
    assert distance(plain.server.model, outcome.server.model) > 1e-4


def test_without_weight_it_is_fedavg(tmp_path):
    federation = three_clients()
    moon = play(Moon(LOCAL, mu=0.0), federation, tmp_path / "moon", rounds=2)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=2)
    assert_close(moon.server.model, plain.server.model)


def test_the_first_round_has_no_contrast(tmp_path):
    """The model before the first one is the received one: the contrast is the constant log 2."""
    federation = three_clients()
    moon = play(Moon(LOCAL, mu=5.0), federation, tmp_path / "moon")
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain")
    assert_close(moon.server.model, plain.server.model)
    z = torch.randn(4, 3)
    assert abs(float(Moon().contrast(z, z, z)) - math.log(2)) < 1e-6


def test_the_contrast_is_within_its_bounds():
    """Similarities are between -1 and 1, so it is between log(1 + exp(∓2/tau))."""
    z = torch.randn(50, 3)
    best, worst = (float(Moon(temperature=0.5).contrast(z, s * z, -s * z)) for s in (1, -1))
    assert abs(best - math.log1p(math.exp(-4))) < 1e-5
    assert abs(worst - math.log1p(math.exp(4))) < 1e-5


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_looking_at_features_for_the_contrast_changes_no_statistics(batchnorm):
    federation = tiny_federation(2, model={"name": "normed"}, batchnorm=batchnorm)
    said = [overhear(kind, federation)[0] for kind in (FedAvg(LOCAL), Moon(LOCAL, mu=0.0))]
    plain, quiet = ([e.answered for e in part if not e.call.evaluation] for part in said)
    assert plain == quiet
