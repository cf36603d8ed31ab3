from __future__ import annotations

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation, tiny_member
from tests.values.by_hand import (
    B,
    C,
    LeastSquares,
    V,
    W,
    assert_close,
    assert_scores,
    initial,
    play,
    quadratic_member,
    scores,
    three_clients,
)
from tests.values.test_fedmh import bank, banks, client_of
from torch.nn import functional as F

from consort.algorithms._own_model import MODEL
from consort.algorithms._prototypes import as_examples, class_means, pull
from consort.algorithms.fedproto import FedProto
from consort.algorithms.local_only import LocalOnly
from consort.core.algorithm import Clients
from consort.core.wire import tensors_in
from consort.data.examples import Examples, Splits
from consort.engines.scripted import Scripted
from consort.errors import ClientFailed
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

LR, STEPS = 0.2, 3
LOCAL = LocalTraining(epochs=STEPS, lr=LR)
SMALL = LocalTraining(lr=0.1, batch=8)


def without_class(member, label):
    """The same client without the training examples of a class."""
    splits = member.load()
    rest = splits.train.take((splits.train.targets["classify"] != label).nonzero()[:, 0])
    return Member.of(member.tasks, member.model, Splits(rest, splits.validation, splits.test))


def unlike_classes():
    """Three clients; the first knows nothing of class 2, the last alone of class 0."""
    members = dict(three_clients().members)
    members["c0"] = without_class(without_class(members["c0"], 2), 0)
    members["c1"] = without_class(members["c1"], 0)
    return Federation(members)


def descend(weights, examples, prototypes, strength):
    """Gradient descent with the pull, and the mean feature of every class over all steps."""
    weights, seen = dict(weights), {}
    labels = examples.targets["classify"].tolist()
    for _ in range(STEPS):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        z = F.relu(examples.inputs @ leaves[W].T + leaves[B])
        loss = F.cross_entropy(z @ leaves[V].T + leaves[C], examples.targets["classify"])
        for feature, label in zip(z, labels, strict=True):
            seen.setdefault(label, []).append(feature.detach())
            if label in prototypes:
                squares = ((feature - prototypes[label]) ** 2).mean()
                loss = loss + strength * squares / len(labels)
        loss.backward()
        weights = {name: weights[name] - LR * leaf.grad for name, leaf in leaves.items()}
    return weights, {label: torch.stack(found).mean(0) for label, found in seen.items()}


@pytest.mark.parametrize("strength", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(strength, share, tmp_path):
    federation = unlike_classes()
    ids = federation.client_ids
    algorithm = FedProto(LOCAL, strength=strength)
    outcome = play(algorithm, federation, tmp_path, rounds=3, participation=share)
    models = {client: initial(federation) for client in ids}
    prototypes = {}
    for round_ in (1, 2, 3):
        sent = []
        for client in cohort(ids, share, 0, round_):
            train = federation.data(client).train
            models[client], own = descend(models[client], train, prototypes, strength)
            sent.append(own)
        for label in {label for own in sent for label in own}:
            owned = [own[label] for own in sent if label in own]
            prototypes = prototypes | {label: sum(owned) / len(owned)}
        assert_scores(scores(outcome, "personal", round_), federation, models)
    for client, state in outcome.states.items():
        assert_close(state[MODEL], models[client])
    assert set(prototypes) == {0, 1, 2}
    assert_close(outcome.server.prototypes["classify"], prototypes)


def test_prototypes_of_one_epoch_at_rest_are_exact_means():
    federation = banks()
    exchanges, (_, server) = overhear(FedProto(LocalTraining(lr=0.0, batch=5)), federation, 1)
    sent = {
        e.call.client: e.reply.content["prototypes"] for e in exchanges if "train" in e.call.method
    }
    for client in federation.client_ids:
        model, train = federation.blueprint(client).fresh(), federation.data(client).train
        features = model.encoder(train.inputs).detach()
        for task, labels in train.targets.items():
            assert set(sent[client][task]) == {y for y in labels.tolist() if y >= 0}
            for label, prototype in sent[client][task].items():
                expected = features[labels == label].mean(0)
                torch.testing.assert_close(prototype, expected, atol=1e-6, rtol=0)
    assert set(server.prototypes) == {"identify", "detect"}
    for task, known in server.prototypes.items():
        for label, prototype in known.items():
            owned = [own[task][label] for own in sent.values() if label in own[task]]
            torch.testing.assert_close(prototype, sum(owned) / len(owned), atol=1e-6, rtol=0)


def test_forgeries_belong_to_no_user():
    federation = Federation({"c0": bank(0, forged_only=True), "c1": bank(1)})
    exchanges, (_, server, _) = overhear(FedProto(SMALL), federation)
    first = next(e.reply.content["prototypes"] for e in exchanges if e.call.client == "c0")
    assert first["identify"] == {}
    assert set(first["detect"]) == {0}
    assert set(server.prototypes["detect"]) == {0, 1}
    assert set(server.prototypes["identify"]) <= set(range(4))


@pytest.mark.parametrize("strength", [1.0, 0.25])
def test_the_pull_is_that_of_known_classes_shared_by_the_whole_batch(strength):
    features = torch.tensor([[1.0, 2.0], [0.0, 0.0], [3.0, 3.0], [5.0, 1.0]], requires_grad=True)
    batch = Examples(features, {"user": torch.tensor([0, 1, -1, 7])})
    known = {"user": {0: torch.tensor([0.0, 0.0]), 7: torch.tensor([5.0, 3.0])}}
    terms = pull(batch, known, strength)
    assert list(terms) == ["user prototypes"]
    assert terms["user prototypes"].item() == pytest.approx(strength * (1 + 4 + 4) / 8)
    terms["user prototypes"].backward()
    slope = torch.tensor([[1.0, 2.0], [0.0, 0.0], [0.0, 0.0], [0.0, -2.0]])
    torch.testing.assert_close(features.grad, 2 * strength * slope / 8)


def test_means_are_by_class_and_order_of_clients():
    labels = torch.tensor([2, -1, 0, 2])
    found = class_means(torch.tensor([[1.0], [50.0], [4.0], [2.0]]), labels)
    assert {label: value.item() for label, value in found.items()} == {0: 4.0, 2: 1.5}
    gathered = as_examples([{"a": found, "b": {}}, {"a": {2: torch.tensor([9.0])}}, {}])
    assert list(gathered) == ["a"]
    assert gathered["a"].inputs.flatten().tolist() == [4.0, 1.5, 9.0]
    assert gathered["a"].targets["a"].tolist() == [0, 2, 2]


@pytest.mark.parametrize("federation", [banks(), tiny_federation(3)], ids=["banks", "tiny"])
def test_without_strength_everybody_trains_alone_bit_for_bit(federation, tmp_path):
    pulled = play(FedProto(SMALL, strength=0.0), federation, tmp_path / "proto", rounds=3)
    alone = play(LocalOnly(SMALL), federation, tmp_path / "alone", rounds=3)
    for client, state in alone.states.items():
        assert pulled.states[client][MODEL].equals(state["model"])


def spread(server, exchanges):
    """How far the clients' prototypes of the last round are from the mean, on average."""
    last = [e for e in exchanges if e.call.method == "train"][-3:]
    gaps = [
        (feature - server.prototypes[task][label]).square().sum()
        for exchange in last
        for task, means in exchange.reply.content["prototypes"].items()
        for label, feature in means.items()
    ]
    return float(sum(gaps) / len(gaps))


def test_unlike_encoders_come_to_agree_and_send_nothing_else():
    spreads = []
    for strength in (0.0, 5.0):
        exchanges, servers = overhear(FedProto(SMALL, strength=strength), banks(), rounds=8)
        spreads.append(spread(servers[-1], exchanges))
        content = [[e.call.payload, e.reply.content] for e in exchanges]
        assert {name for name, _ in tensors_in(content)} == {""}
    assert spreads[1] < 0.5 * spreads[0]


def test_a_class_that_nobody_sends_keeps_its_prototype():
    roster = tiny_federation(2).roster
    own = {
        "c0": {"classify": {0: torch.tensor([1.0, 1.0])}},
        "c1": {"classify": {0: torch.tensor([3.0, 5.0]), 2: torch.tensor([0.0, 2.0])}},
    }
    engine = Scripted(lambda call: {"prototypes": own[call.client]})
    algorithm = FedProto()
    server = algorithm.start(roster)
    values = []
    for present in (("c0", "c1"), ("c0",)):
        server = algorithm.round(server, Clients(present, 1, 2, 0, engine, 2))
        known = server.prototypes["classify"]
        values.append({label: value.tolist() for label, value in known.items()})
    assert values == [{0: [2.0, 3.0], 2: [0.0, 2.0]}, {0: [1.0, 1.0], 2: [0.0, 2.0]}]
    assert engine.calls[0].payload == {"prototypes": {}}


def without_examples(member):
    """A client with nothing to train on."""
    client = client_of(member)
    nothing = client.data.train.take(torch.zeros(0, dtype=torch.int64))
    client.data = Splits(nothing, client.data.validation, client.data.test)
    return client


def test_a_client_without_examples_sends_nothing():
    client = without_examples(bank(0))
    algorithm = FedProto(SMALL)
    known = {"identify": {}, "detect": {1: torch.ones(3)}}
    assert algorithm.train(client, known) == {"prototypes": {}}
    assert client.state[MODEL].equals(Federation({"c0": bank(0)}).roster.model("c0"))


def test_a_task_without_classes_is_named(tmp_path):
    federation = Federation({"c0": quadratic_member(0, 6)})
    assert isinstance(federation.members["c0"].tasks["fit"], LeastSquares)
    with pytest.raises(ClientFailed, match="no classes in task 'fit'"):
        play(FedProto(SMALL), federation, tmp_path)


def test_a_client_that_has_never_trained_is_tested_as_it_began(tmp_path):
    members = {
        f"c{n}": tiny_member(f"c{n}", 12, model={"name": "mlp", "hidden": [4]}) for n in range(2)
    }
    federation = Federation(members)
    outcome = play(FedProto(LOCAL), federation, tmp_path, dropout=1.0)
    models = {client: initial(federation) for client in members}
    assert_scores(scores(outcome, "personal", 1), federation, models)
