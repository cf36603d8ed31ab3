from __future__ import annotations

import math

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation
from tests.values.by_hand import assert_close, initial, play, three_clients
from tests.values.test_fedmh import bank, banks
from tests.values.test_fedproto import SMALL, descend, unlike_classes, without_examples
from torch import nn
from torch.nn import functional as F

from consort.algorithms._own_model import MODEL
from consort.algorithms.fedtgp import (
    FedTGP,
    contrast,
    make,
    new_maker,
    widest_gap,
    with_rows,
)
from consort.algorithms.local_only import LocalOnly
from consort.core.algorithm import Clients
from consort.core.params import Params
from consort.core.wire import tensors_in
from consort.engines.scripted import Scripted
from consort.errors import Failure
from consort.training.local import LocalTraining

LR, STEPS = 0.2, 3
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


# The margin and the loss


def test_the_margin_is_the_gap_of_the_loneliest_class():
    means = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 16.0], [4.0, 4.0]])
    assert widest_gap(means) == pytest.approx(12.0)
    assert widest_gap(means[:2]) == pytest.approx(5.0)
    assert widest_gap(means[:1]) == 0.0
    assert widest_gap(torch.ones(3, 2)) == 0.0


def test_the_loss_is_the_cross_entropy_of_distances_with_a_margin():
    sent = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    prototypes = torch.tensor([[0.0, 1.0], [3.0, 0.0], [3.0, 4.0]])
    near, mid, far = 1.0, 3.0, 5.0
    first = -math.log(math.exp(-near - 2) / (math.exp(-near - 2) + math.exp(-mid) + math.exp(-far)))
    gaps = math.hypot(3, 3), 4.0, 0.0
    second = -math.log(math.exp(-2) / (math.exp(-gaps[0]) + math.exp(-gaps[1]) + math.exp(-2)))
    found = contrast(sent, prototypes, torch.tensor([0, 2]), 2.0)
    assert found.item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_a_prototype_that_meets_its_goal_has_a_finite_slope():
    sent = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    prototypes = sent.clone().requires_grad_()
    contrast(sent, prototypes, torch.arange(40), 1.0).backward()
    assert bool(prototypes.grad.isfinite().all())
    assert bool(prototypes.grad.any())


# The network that makes prototypes


def test_the_network_is_a_table_and_two_layers():
    generator = torch.Generator().manual_seed(1)
    maker = with_rows(new_maker(5, generator), 3, generator)
    table, hidden, out = nn.Embedding(3, 5), nn.Linear(5, 5), nn.Linear(5, 5)
    with torch.no_grad():
        table.weight.copy_(maker["rows"])
        for name, layer in (("hidden", hidden), ("out", out)):
            layer.weight.copy_(maker[f"{name}.weight"])
            layer.bias.copy_(maker[f"{name}.bias"])
        expected = out(F.relu(hidden(table(torch.arange(3)))))
    torch.testing.assert_close(make(maker), expected)
    assert float(maker["hidden.weight"].abs().max()) <= 5**-0.5
    more = with_rows(maker, 5, generator)
    assert torch.equal(more["rows"][:3], maker["rows"])
    assert more["rows"].shape == (5, 5)


def talk(algorithm, replies, rounds=1):
    """The server's state after rounds in which clients send these prototypes of two features."""
    server = algorithm.start(tiny_federation(2).roster)
    for number in range(1, rounds + 1):
        engine = Scripted(lambda call: {"prototypes": {"classify": replies[call.client]}})
        clients = Clients(tuple(replies), number, rounds, 0, engine, len(replies))
        server = algorithm.round(server, clients)
    return server


TWO = {
    "c0": {4: torch.tensor([0.0, 0.0]), 1: torch.tensor([1.0, 3.0])},
    "c1": {4: torch.tensor([2.0, 0.0]), 9: torch.tensor([-4.0, 1.0])},
}


@pytest.mark.parametrize("largest", [100.0, 1.5])
def test_the_server_descends_by_hand(largest):
    still = talk(FedTGP(server_lr=0.0), TWO)
    moved = talk(FedTGP(server_lr=0.05, server_epochs=40, largest_margin=largest), TWO)
    assert list(still.prototypes["classify"]) == [1, 4, 9]
    sent = torch.tensor([[0.0, 0.0], [1.0, 3.0], [2.0, 0.0], [-4.0, 1.0]])
    places = [1, 0, 1, 2]
    means = [torch.tensor(m) for m in ([1.0, 3.0], [1.0, 0.0], [-4.0, 1.0])]
    gaps = [
        min(float((one - other).norm()) for other in means if other is not one) for one in means
    ]
    margin = min(max(gaps), largest)
    assert max(gaps) > 3
    leaves = {name: t.clone().requires_grad_() for name, t in still.makers["classify"].items()}
    for _ in range(40):
        hidden = torch.relu(leaves["rows"] @ leaves["hidden.weight"].T + leaves["hidden.bias"])
        made = hidden @ leaves["out.weight"].T + leaves["out.bias"]
        loss = 0.0
        for prototype, place in zip(sent, places, strict=True):
            distances = torch.stack([(prototype - centre).norm() for centre in made])
            distances = distances + margin * F.one_hot(torch.tensor(place), 3)
            loss = loss - torch.log_softmax(-distances, 0)[place] / 4
        grads = torch.autograd.grad(loss, list(leaves.values()))
        with torch.no_grad():
            for leaf, grad in zip(leaves.values(), grads, strict=True):
                leaf -= 0.05 * grad
    expected = Params({name: leaf.detach() for name, leaf in leaves.items()})
    assert (moved.makers["classify"] - expected).norm() < 1e-4
    made = torch.stack(list(moved.prototypes["classify"].values()))
    torch.testing.assert_close(made, make(expected), atol=1e-4, rtol=0)


def test_training_brings_every_prototype_closest_to_its_class():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 8, generator=generator)
    clients = {
        f"c{n}": dict(enumerate(centres + 0.3 * torch.randn(4, 8, generator=generator)))
        for n in range(3)
    }
    before, after = (
        talk(FedTGP(server_epochs=100, server_lr=lr), clients, rounds=3).prototypes["classify"]
        for lr in (0.0, 0.05)
    )
    assert not all(nearest(before, own) == [0, 1, 2, 3] for own in clients.values())
    assert all(nearest(after, own) == [0, 1, 2, 3] for own in clients.values())


def nearest(prototypes, own):
    """The class whose prototype is closest, for each of a client's own."""
    found = []
    for feature in own.values():
        distances = {label: float((feature - goal).norm()) for label, goal in prototypes.items()}
        found.append(min(distances, key=distances.get))
    return found


def test_a_new_class_gets_a_row_and_the_others_keep_theirs():
    algorithm = FedTGP(server_lr=0.0)
    server = talk(algorithm, {"c0": TWO["c0"]})
    engine = Scripted(lambda call: {"prototypes": {"classify": TWO[call.client]}})
    later = algorithm.round(server, Clients(("c1",), 2, 2, 0, engine, 2))
    assert list(later.prototypes["classify"]) == [1, 4, 9]
    assert torch.equal(later.makers["classify"]["rows"][:2], server.makers["classify"]["rows"])
    for label in (1, 4):
        before, after = (s.prototypes["classify"][label] for s in (server, later))
        torch.testing.assert_close(before, after)


def test_a_rate_that_is_too_high_is_named():
    with pytest.raises(Failure, match="lower server_lr"):
        talk(FedTGP(server_lr=1e30), TWO)


# The clients


def by_hand(weights, client, federation, prototypes, strength):
    return descend(weights, federation.data(client).train, prototypes, strength)[0]


@pytest.mark.parametrize("strength", [0.0, 2.0])
def test_clients_are_pulled_as_in_fedproto_and_send_means_as_in_testing(strength):
    federation = unlike_classes()
    exchanges, servers = overhear(FedTGP(LOCAL, strength=strength), federation, rounds=2)
    models = {client: initial(federation) for client in federation.client_ids}
    known = [{}, servers[1].prototypes["classify"]]
    for exchange in exchanges:
        if exchange.call.method != "train":
            continue
        client, train = exchange.call.client, federation.data(exchange.call.client).train
        prototypes = known[exchange.call.round - 1]
        models[client] = by_hand(models[client], client, federation, prototypes, strength)
        twin = federation.blueprint(client).fresh()
        Params(models[client]).load_into(twin)
        features, labels = twin.encoder(train.inputs).detach(), train.targets["classify"]
        expected = {label: features[labels == label].mean(0) for label in set(labels.tolist())}
        assert_close(exchange.reply.content["prototypes"]["classify"], expected)


@pytest.mark.parametrize("federation", [banks(), three_clients()], ids=["banks", "three"])
def test_without_strength_everybody_trains_alone_bit_for_bit(federation, tmp_path):
    pulled = play(FedTGP(SMALL, strength=0.0), federation, tmp_path / "tgp", rounds=3)
    alone = play(LocalOnly(SMALL), federation, tmp_path / "alone", rounds=3)
    for client, state in alone.states.items():
        assert pulled.states[client][MODEL].equals(state["model"])


def test_unlike_encoders_have_prototypes_for_both_tasks_and_send_nothing_else():
    exchanges, servers = overhear(FedTGP(SMALL), banks(), rounds=3)
    known = servers[-1].prototypes
    assert {task: set(found) for task, found in known.items()} == {
        "identify": {0, 1, 2, 3},
        "detect": {0, 1},
    }
    content = [[e.call.payload, e.reply.content] for e in exchanges]
    assert {name for name, _ in tensors_in(content)} == {""}


def test_a_client_without_examples_sends_nothing():
    assert FedTGP(SMALL).train(without_examples(bank(0)), {}) == {"prototypes": {}}
