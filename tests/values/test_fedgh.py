from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    B,
    C,
    LeastSquares,
    V,
    W,
    assert_close,
    assert_scores,
    descend,
    initial,
    play,
    scores,
    three_clients,
)
from tests.values.test_fedmh import bank, banks
from tests.values.test_fedproto import SMALL, without_examples
from torch import nn
from torch.nn import functional as F

from consort.algorithms._own_model import MODEL
from consort.algorithms.fedgh import FedGH
from consort.core.algorithm import Clients
from consort.core.params import Params
from consort.core.wire import tensors_in
from consort.domains.signatures.tasks import Detection, Identification
from consort.engines.scripted import Scripted
from consort.errors import Failure, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.participation import cohort
from consort.tasks import Classification
from consort.training.linear_heads import class_loss, head_output
from consort.training.local import LocalTraining

LOCAL = LocalTraining(epochs=2, lr=0.2)
EPOCHS, RATE = 30, 0.3


# Heads without their modules


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        (Classification(3), [0, 2, 1, 1]),
        (Identification(3), [0, 2, 1, 1]),
        (Detection(hidden=7), [0, 1, 1, 0]),
    ],
    ids=["classification", "identification", "detection"],
)
def test_the_server_computes_what_heads_and_tasks_do(task, labels):
    torch.manual_seed(0)
    head, features, target = task.head(5), torch.randn(4, 5), torch.tensor(labels)
    params = Params({f"heads.t.{name}": tensor for name, tensor in head.named_parameters()})
    output = head_output(params, features)
    torch.testing.assert_close(output.flatten(), head(features).flatten())
    torch.testing.assert_close(class_loss(output, target), task.loss(head(features), target))


def test_a_layer_may_have_no_bias():
    weight = torch.tensor([[1.0, -1.0]])
    assert head_output(Params({"heads.t.weight": weight}), torch.tensor([[5.0, 2.0]])).item() == 3.0


@dataclass(frozen=True)
class Normalised(LeastSquares):
    """A task whose head is more than linear layers."""

    def head(self, features):
        return nn.Sequential(nn.Linear(features, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))


def test_a_head_that_the_server_cannot_compute_is_refused():
    member = tiny_federation(1).members["c0"]
    federation = Federation(
        {"c0": Member({"classify": Normalised()}, member.model, member.example, member.load)}
    )
    with pytest.raises(UsageError, match=r"heads\.classify\.1\.weight.* lg_fedavg"):
        FedGH().start(federation.roster)


# The server


def slopes(weight, bias, features, labels):
    """The gradient of the mean cross entropy of a linear layer."""
    error = torch.softmax(features @ weight.T + bias, 1) - F.one_hot(labels, len(bias))
    return error.T @ features / len(features), error.mean(0)


def generalised(weight, bias, prototypes):
    """Full steps on the prototypes of all clients, one after the other."""
    features = torch.stack([feature for own in prototypes for feature in own.values()])
    labels = torch.tensor([label for own in prototypes for label in own])
    for _ in range(EPOCHS):
        slope = slopes(weight, bias, features, labels)
        weight, bias = weight - RATE * slope[0], bias - RATE * slope[1]
    return weight, bias


def means(model, examples):
    features = F.relu(examples.inputs @ model[W].T + model[B])
    labels = examples.targets["classify"]
    return {label: features[labels == label].mean(0) for label in sorted(set(labels.tolist()))}


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(share, tmp_path):
    federation = three_clients()
    ids = federation.client_ids
    algorithm = FedGH(LOCAL, server_epochs=EPOCHS, server_lr=RATE)
    outcome = play(algorithm, federation, tmp_path, rounds=3, participation=share)
    models = {client: initial(federation) for client in ids}
    head = {V: models["c0"][V], C: models["c0"][C]}
    for round_ in (1, 2, 3):
        sent = []
        for client in cohort(ids, share, 0, round_):
            train = federation.data(client).train
            models[client] = descend(models[client] | head, train, 0.2, 2)
            sent.append(means(models[client], train))
        head = dict(zip((V, C), generalised(head[V], head[C], sent), strict=True))
        tested = {client: model | head for client, model in models.items()}
        assert_scores(scores(outcome, "personal", round_), federation, tested)
    assert_close(outcome.server.heads, head)
    for client, state in outcome.states.items():
        assert_close(state[MODEL], models[client])


def test_both_heads_learn_and_only_they_and_prototypes_travel():
    federation = banks()
    algorithm = FedGH(LocalTraining(lr=0.1, batch=64), server_epochs=3, server_lr=0.2)
    exchanges, (start, after) = overhear(algorithm, federation, rounds=1)
    sent = [e.reply.content["prototypes"] for e in exchanges if e.call.method == "train"]
    member = federation.members["c0"]
    for task, kind in member.tasks.items():
        head = federation.blueprint("c0").fresh().heads[task]
        features = torch.stack([feature for own in sent for feature in own[task].values()])
        labels = torch.tensor([label for own in sent for label in own[task]])
        for _ in range(3):
            params = list(head.parameters())
            loss = kind.loss(head(features), labels)
            for param, grad in zip(params, torch.autograd.grad(loss, params), strict=True):
                param.data -= 0.2 * grad
        for name, param in head.named_parameters():
            found = after.heads[f"heads.{task}.{name}"]
            torch.testing.assert_close(found, param.data, atol=1e-6, rtol=1e-5)
            assert not torch.equal(found, start.heads[f"heads.{task}.{name}"])
    down = {name for e in exchanges for name, _ in tensors_in(e.call.payload)}
    up = {name for e in exchanges for name, _ in tensors_in(e.reply.content)}
    assert down == set(start.heads)
    assert up == {""}


def test_without_genuine_signatures_the_users_head_stays():
    federation = Federation({f"c{n}": bank(n, forged_only=True) for n in range(2)})
    _, (start, after) = overhear(FedGH(SMALL), federation, rounds=1)
    assert after.heads.only("heads.identify").equals(start.heads.only("heads.identify"))
    assert not after.heads.only("heads.detect").equals(start.heads.only("heads.detect"))


def test_heads_learn_the_classes_of_prototypes():
    goals = {
        0: torch.tensor([2.0, 0.0]),
        1: torch.tensor([0.0, 2.0]),
        2: torch.tensor([-2.0, -2.0]),
    }
    federation = tiny_federation(1, model={"name": "mlp", "hidden": [2]})
    algorithm = FedGH(server_epochs=200, server_lr=0.1)
    engine = Scripted(lambda call: {"prototypes": {"classify": goals}})
    server = algorithm.start(federation.roster)
    server = algorithm.round(server, Clients(("c0",), 1, 1, 0, engine, 1))
    found = head_output(server.heads, torch.stack(list(goals.values()))).argmax(1)
    assert found.tolist() == [0, 1, 2]


def test_a_rate_that_is_too_high_is_named():
    with pytest.raises(Failure, match="lower server_lr"):
        overhear(FedGH(SMALL, server_lr=1e38), banks(), rounds=1)


def test_a_client_without_examples_sends_nothing():
    heads = banks().roster.shared("heads")
    client = without_examples(bank(0))
    assert FedGH(SMALL).train(client, heads) == {"prototypes": {}}
    assert client.state[MODEL].only("heads").equals(heads)
