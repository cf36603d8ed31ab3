from __future__ import annotations

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    B,
    C,
    V,
    W,
    average,
    descend,
    distance,
    initial,
    play,
    quadratic_member,
    three_clients,
)
from tests.values.test_fedmh import bank
from torch import nn
from torch.nn import functional as F

from consort.algorithms.fedgen import FedGen
from consort.algorithms.lg_fedavg import LGFedAvg
from consort.core.params import Params
from consort.core.randomness import derive, generator_for
from consort.data.examples import Examples, Splits
from consort.domains.signatures.tasks import Detection
from consort.errors import Failure, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.tasks import Classification
from consort.training.local import LocalTraining

LR, STEPS = 0.2, 3
LOCAL = LocalTraining(epochs=STEPS, lr=LR)
SMALL = {"noise": 6, "hidden": 5, "server_steps": 4, "server_lr": 0.05}


def made(weights, labels, noise, classes=3, trained=True):
    """The generator, written out; in training with the batch's own mean and variance."""
    inputs = torch.cat([noise, F.one_hot(labels, classes).float()], 1)
    hidden = inputs @ weights["hidden.weight"].T + weights["hidden.bias"]
    if trained:
        mean, variance = weights["buffers.norm.running_mean"], weights["buffers.norm.running_var"]
    else:
        mean, variance = hidden.mean(0), hidden.var(0, unbiased=False)
    hidden = (hidden - mean) / (variance + 1e-5).sqrt()
    hidden = (hidden * weights["norm.weight"] + weights["norm.bias"]).relu()
    return hidden @ weights["output.weight"].T + weights["output.bias"]


def draws(random, labels, count):
    drawn = torch.multinomial(labels, count, replacement=True, generator=random)
    return drawn, torch.rand(count, SMALL["noise"], generator=random)


def first_weights(random):
    """Drawn as those of linear layers are: evenly, up to one over the root of the inputs."""
    inside, features = SMALL["noise"] + 3, 4
    found = {}
    for layer, rows, columns in (("hidden", 5, inside), ("output", features, 5)):
        for part, shape in (("weight", (rows, columns)), ("bias", (rows,))):
            even = torch.empty(shape).uniform_(-1, 1, generator=random)
            found[f"{layer}.{part}"] = even * columns**-0.5
    return found | {"norm.weight": torch.ones(5), "norm.bias": torch.zeros(5)}


def teach(weights, heads, labels, random):
    """Adam against the cross entropy of all heads, weighted by examples."""
    first, second = ({n: torch.zeros_like(t) for n, t in weights.items()} for _ in range(2))
    for step in range(1, SMALL["server_steps"] + 1):
        leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
        drawn, noise = draws(random, labels, 32)
        features = made(leaves, drawn, noise, trained=False)
        votes = [features @ head[V].T + head[C] for head in heads]
        logits = sum(vote * (n / sum(SIZES)) for vote, n in zip(votes, SIZES, strict=True))
        F.cross_entropy(logits, drawn).backward()
        for name, leaf in leaves.items():
            first[name] = 0.9 * first[name] + 0.1 * leaf.grad
            second[name] = 0.999 * second[name] + 0.001 * leaf.grad**2
            speed = (second[name] / (1 - 0.999**step)).sqrt() + 1e-8
            move = first[name] / (1 - 0.9**step) / speed
            weights[name] = weights[name] - SMALL["server_lr"] * move
    return weights


def test_the_server_teaches_the_generator_by_all_heads(tmp_path):
    federation = three_clients()
    outcome = play(FedGen(LOCAL, **SMALL), federation, tmp_path)
    trains = [federation.data(client).train for client in federation.client_ids]
    start = initial(federation)
    heads = [descend(start, train, LR, STEPS) for train in trains]
    expected = average([{n: head[n] for n in (V, C)} for head in heads], SIZES)
    assert distance(outcome.server.heads, expected) < 2e-6
    counts = torch.bincount(torch.cat([train.targets["classify"] for train in trains])).float()
    assert torch.equal(outcome.server.labels["classify"], counts)
    random = generator_for(0, 1, "server")
    weights = teach(first_weights(random), heads, counts, random)
    found = outcome.server.makers["classify"]
    del weights["hidden.bias"]  # BatchNorm takes it away again: its gradient is rounding alone
    assert distance({name: found[name] for name in weights}, weights) < 1e-4
    assert found.keys() - weights.keys() == {
        "hidden.bias",
        "buffers.norm.running_mean",
        "buffers.norm.running_var",
    }


@pytest.mark.parametrize("strength", [0.0, 1.0, 3.0])
def test_clients_learn_from_the_generator_by_hand(strength, tmp_path):
    federation = three_clients()
    algorithm = FedGen(LOCAL, strength, **SMALL)
    first = play(algorithm, federation, tmp_path / "1", rounds=1)
    second = play(algorithm, federation, tmp_path / "2", rounds=2)
    maker, labels = first.server.makers["classify"], first.server.labels["classify"]
    heads = []
    for client, size in zip(federation.client_ids, SIZES, strict=True):
        random = torch.Generator().manual_seed(derive(0, 2, client, "train", 0) + 1)
        _ = [torch.randperm(size, generator=random) for _ in range(STEPS)]
        weights = dict(first.states[client]["model"] | first.server.heads)
        train = federation.data(client).train
        for _ in range(STEPS):
            drawn, noise = draws(random, labels, size)
            features = made(maker, drawn, noise)
            leaves = {n: t.clone().requires_grad_() for n, t in weights.items()}
            seen = F.relu(train.inputs @ leaves[W].T + leaves[B])
            loss = F.cross_entropy(seen @ leaves[V].T + leaves[C], train.targets["classify"])
            dreamt = F.cross_entropy(features @ leaves[V].T + leaves[C], drawn)
            (loss + strength * dreamt).backward()
            weights = {n: weights[n] - LR * leaf.grad for n, leaf in leaves.items()}
        assert distance(second.states[client]["model"], weights) < 1e-5
        heads.append({n: weights[n] for n in (V, C)})
    assert distance(second.server.heads, average(heads, SIZES)) < 1e-5


def test_without_generated_features_it_is_lg_fedavg(tmp_path):
    federation = tiny_federation(3)
    local = LocalTraining(epochs=2, lr=0.1, batch=8)
    generating = play(FedGen(local, 0.0, **SMALL), federation, tmp_path / "gen", rounds=3)
    plain = play(LGFedAvg(local), federation, tmp_path / "plain", rounds=3)
    assert distance(generating.server.heads, plain.server.heads) < 1e-5
    taught = play(FedGen(local, 1.0, **SMALL), federation, tmp_path / "taught", rounds=3)
    assert distance(taught.server.heads, plain.server.heads) > 1e-3


def ensemble_loss(server, algorithm, replies, task, classes):
    maker = algorithm.maker(server.heads, task)
    Params(server.makers[task]).load_into(maker.eval())
    random = torch.Generator().manual_seed(5)
    drawn = torch.multinomial(server.labels[task], 200, replacement=True, generator=random)
    with torch.no_grad():
        features = maker(drawn, random)
        total = sum(reply["examples"] for reply in replies)
        return votes_loss(replies, features, drawn, total, task, classes)


def votes_loss(replies, features, drawn, total, task, classes):
    logits = 0
    for reply in replies:
        if classes == 2:
            head = Detection().head(3)
            Params(
                {
                    n.removeprefix(f"heads.{task}."): t
                    for n, t in reply["heads"].items()
                    if task in n
                }
            ).load_into(head)
            logits = logits + reply["examples"] / total * head(features)
        else:
            weight, bias = (reply["heads"][f"heads.{task}.{part}"] for part in ("weight", "bias"))
            logits = logits + reply["examples"] / total * (features @ weight.T + bias)
    if classes == 2:
        return float(F.binary_cross_entropy_with_logits(logits, drawn.float()))
    return float(F.cross_entropy(logits, drawn))


def test_generated_signatures_have_users_and_are_genuine_or_not():
    """One generator per task: users are counted on genuine signatures, the rest is 0 or 1."""
    federation = Federation({f"c{n}": bank(n, hidden=4 + n) for n in range(3)})
    algorithm = FedGen(LOCAL, noise=8, hidden=16)
    exchanges, servers = overhear(algorithm, federation, rounds=1)
    targets = [federation.data(client).train.targets for client in federation.client_ids]
    users = torch.cat([target["identify"] for target in targets])
    genuine = torch.cat([target["detect"] for target in targets])
    labels = servers[1].labels
    assert torch.equal(labels["identify"], torch.bincount(users[users >= 0], minlength=4).float())
    assert torch.equal(labels["detect"], torch.bincount(genuine, minlength=2).float())
    replies = [e.reply.content for e in exchanges if e.call.method == "train"]
    assert ensemble_loss(servers[1], algorithm, replies, "identify", 4) < 0.4
    assert ensemble_loss(servers[1], algorithm, replies, "detect", 2) < 0.5


def test_a_label_that_nobody_has_is_never_made_and_a_task_without_labels_waits(tmp_path):
    members = {f"c{n}": bank(n, forged_only=True) for n in range(2)}
    outcome = play(FedGen(LOCAL, **SMALL), Federation(members), tmp_path, rounds=2)
    assert outcome.server.makers.keys() == outcome.server.labels.keys() == {"detect"}
    assert float(outcome.server.labels["detect"][1]) == 0


def test_the_generator_is_used_as_it_is_tested():
    """What clients receive makes the same feature of a label in any company."""
    algorithm = FedGen(**SMALL)
    _, servers = overhear(algorithm, three_clients(), rounds=1)
    maker = algorithm.maker(servers[1].heads, "classify")
    Params(servers[1].makers["classify"]).load_into(maker.eval())
    both = maker(torch.tensor([2, 0]), torch.Generator().manual_seed(1))
    alone = maker(torch.tensor([2]), torch.Generator().manual_seed(1))
    torch.testing.assert_close(both[:1], alone)


def test_generators_go_on_from_where_they_were():
    _, servers = overhear(FedGen(LOCAL, **SMALL | {"server_lr": 1e-9}), three_clients(), rounds=3)
    weights = [server.makers["classify"]["output.weight"] for server in servers[1:]]
    assert all(float((other - weights[0]).abs().max()) < 1e-6 for other in weights)


def with_head(head):
    class Odd(Classification):
        def head(self, features):
            return head(features)

    examples = Examples(torch.randn(6, 4), {"odd": torch.arange(6) % 3})
    spec = ModelSpec.of({"name": "mlp", "hidden": [5]})
    member = Member.of({"odd": Odd(3)}, spec, Splits(examples, examples, examples))
    return Federation({"a": member, "b": member})


def test_heads_that_the_server_cannot_compute_are_refused():
    convolution = with_head(lambda features: nn.Conv1d(features, 3, 1))
    with pytest.raises(
        UsageError, match=r"'heads.odd.weight' belongs to another layer: .* lg_fedavg"
    ):
        FedGen().start(convolution.roster)
    normed = with_head(lambda features: nn.Sequential(nn.Linear(features, 3), nn.BatchNorm1d(3)))
    with pytest.raises(
        UsageError, match=r"'heads.odd.1.weight' belongs to another layer: .* lg_fedavg"
    ):
        FedGen().start(normed.roster)


def test_a_task_without_labels_is_named(tmp_path):
    federation = Federation({"a": quadratic_member(0, 10)})
    with pytest.raises(Failure, match=r"no labels in task 'fit'.* lg_fedavg"):
        play(FedGen(), federation, tmp_path)
