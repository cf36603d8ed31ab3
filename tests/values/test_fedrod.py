from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    HEAD,
    SIZES,
    B,
    C,
    V,
    W,
    assert_close,
    assert_scores,
    average,
    initial,
    play,
    scores,
    three_clients,
)
from torch import Generator, nn
from torch.nn import functional as F

from consort.algorithms.fedrod import FedRoD, label_priors
from consort.core.messages import State
from consort.errors import UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.tasks import Classification
from consort.training.client import Client
from consort.training.local import LocalTraining

STEPS, LR = 3, 0.2
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def balanced_loss(logits, labels):
    """The balanced softmax, written out: n_c exp(s_c) in the place of exp(s_c)."""
    counts = torch.tensor([(labels == c).sum() for c in range(3)]).float()
    mass = counts * logits.exp()
    return -(mass[range(len(labels)), labels] / mass.sum(1)).log().mean()


def trained(model, own, examples):
    """Both heads in plain PyTorch: the encoder learns from the balanced loss alone."""
    y = examples.targets["classify"]
    for _ in range(STEPS):
        w = {n: t.clone().requires_grad_() for n, t in model.items()}
        p = {n: t.clone().requires_grad_() for n, t in own.items()}
        z = F.relu(examples.inputs @ w[W].T + w[B])
        g = z @ w[V].T + w[C]
        balanced_loss(g, y).backward()
        F.cross_entropy(g.detach() + z.detach() @ p[V].T + p[C], y).backward()
        model = {n: model[n] - LR * w[n].grad for n in model}
        own = {n: own[n] - LR * p[n].grad for n in own}
    return model, own


def test_rounds_follow_the_paper(tmp_path):
    federation = three_clients()
    model = initial(federation)
    own = {c: {n: torch.zeros_like(model[n]) for n in HEAD} for c in federation.client_ids}
    outcome = play(FedRoD(LOCAL), federation, tmp_path, rounds=3)
    for round_ in (1, 2, 3):
        parts = {c: trained(model, own[c], federation.data(c).train) for c in own}
        model = average([part for part, _ in parts.values()], SIZES)
        own = {c: part for c, (_, part) in parts.items()}
        both = {c: model | {n: model[n] + own[c][n] for n in HEAD} for c in own}
        assert_scores(scores(outcome, "global", round_), federation, dict.fromkeys(own, model))
        assert_scores(scores(outcome, "personal", round_), federation, both)
    assert_close(outcome.server.model, model)
    for client, head in own.items():
        assert_close(outcome.states[client]["personal head"], head)


def test_equally_frequent_classes_are_balanced_already():
    """The same is added to all logits then, which no softmax notices."""
    labels, logits = torch.arange(12) % 3, torch.randn(12, 3)
    gap = balanced_loss(logits, labels) - F.cross_entropy(logits, labels)
    assert abs(float(gap)) < 1e-6


def test_classes_that_a_client_lacks_do_not_change(tmp_path):
    """Their rows of the global head get no gradient, and stay what the server sent."""
    member = tiny_federation(1).members["c0"]
    splits = member.load()
    few = splits.train.take((splits.train.targets["classify"] != 2).nonzero().flatten())
    lacking = Member.of(
        member.tasks, member.model, type(splits)(few, splits.validation, splits.test)
    )
    federation = Federation({"c0": lacking})
    outcome = play(FedRoD(LOCAL), federation, tmp_path, rounds=2)
    before, after = initial(federation), outcome.server.model
    assert torch.equal(after[V][2], before[V][2])
    assert not torch.equal(after[V][0], before[V][0])
    assert not torch.equal(outcome.states["c0"]["personal head"][V][2], torch.zeros(16))


def test_priors_are_logarithms_of_counts():
    federation = tiny_federation(1)
    client = Client(
        "c0",
        federation.blueprint("c0").fresh(),
        dict(federation.members["c0"].tasks),
        federation.data("c0"),
        State(),
        Generator(),
        1,
        1,
    )
    labels = client.data.train.targets["classify"].tolist()
    found = label_priors(client)["classify"].exp()
    assert [round(n) for n in found.tolist()] == [labels.count(c) for c in range(3)]


class Deep(Classification):
    """Classes behind a hidden layer of the head."""

    def head(self, features):
        return nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, self.classes))


def test_of_a_deep_head_only_the_last_layer_is_personal(tmp_path):
    """What the personal head adds to the logits is what is added to the last layer."""
    members = {
        name: replace(member, tasks={"classify": Deep(3)})
        for name, member in tiny_federation(2).members.items()
    }
    federation = Federation(members)
    outcome = play(FedRoD(LOCAL), federation, tmp_path)
    own = outcome.states["c0"]["personal head"]
    assert set(own) == {"heads.classify.2.weight", "heads.classify.2.bias"}
    weights = outcome.server.model
    inputs = federation.data("c0").test.inputs
    z = F.relu(inputs @ weights[W].T + weights[B])
    u = F.relu(F.linear(z, weights["heads.classify.0.weight"], weights["heads.classify.0.bias"]))
    last = [weights[f"heads.classify.2.{part}"] for part in ("weight", "bias")]
    more = [own[f"heads.classify.2.{part}"] for part in ("weight", "bias")]
    logits = F.linear(u, *last) + F.linear(u, *more)
    expected = float(F.cross_entropy(logits, federation.data("c0").test.targets["classify"]))
    assert abs(scores(outcome, "personal", 1)["c0"] - expected) < 1e-5


def test_heads_that_are_not_linear_are_refused():
    class Odd(Classification):
        def head(self, features):
            return nn.Sequential(nn.BatchNorm1d(features), nn.Linear(features, self.classes))

    members = {
        name: replace(member, tasks={"classify": Odd(3)})
        for name, member in tiny_federation(2).members.items()
    }
    with pytest.raises(UsageError, match="fedrod needs heads of linear layers"):
        FedRoD().start(Federation(members).roster)
