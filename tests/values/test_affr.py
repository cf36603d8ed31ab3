"""AFFR against its formulas: what weights must do, and what the attack on its users must find.

Properties of the functions alone are beside them: of weights in `test_gap_weights`, of the
contrastive loss in `test_verification`, of FP-DFSN in `test_obfuscation`.
"""

from __future__ import annotations

import math

import pytest
import torch
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    B,
    C,
    V,
    W,
    assert_close,
    average,
    descend,
    initial,
    loss,
    play,
    quadratic_member,
    three_clients,
)
from torch.nn import functional as F

from consort.aggregation.gap_weights import gap_weights, printed_gap_weights, uncentred_gap_weights
from consort.algorithms.affr import AFFR, Server
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.feddg_ga import FedDGGA
from consort.attacks.imprint import Imprint, imprinted
from consort.core.algorithm import Clients
from consort.core.messages import Call
from consort.core.params import Params
from consort.core.plugins import Registered, entries
from consort.core.wire import encode
from consort.domains.fingerprints.task import Verification
from consort.engines.host import ClientHost
from consort.engines.scripted import Scripted
from consort.engines.states import StateStore
from consort.errors import ClientFailed
from consort.federation.federation import Federation
from consort.protection.imprint import RefuseImprints
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.2, epochs=2)


# Step 0 is FedAvg


@pytest.mark.parametrize("gap", ["accuracy", "loss"])
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_without_a_step_every_bit_is_fedavgs(gap, batchnorm, tmp_path, monkeypatch):
    monkeypatch.setitem(entries("models"), "rough", Registered("tests.contract.helpers:Rough"))
    local = LocalTraining(lr=0.1, batch=8)
    models = []
    for algorithm in (AFFR(local, step=0.0, gap=gap), FedAvg(local)):
        federation = tiny_federation(3, model={"name": "rough"}, batchnorm=batchnorm)
        folder = tmp_path / type(algorithm).__name__
        models.append(play(algorithm, federation, folder, rounds=3).server.model)
    assert encode(models[0]) == encode(models[1])


def test_the_first_round_is_fedavgs_whatever_the_step(tmp_path):
    affr = play(AFFR(LOCAL, step=1.0, gap="loss"), three_clients(), tmp_path / "affr")
    plain = play(FedAvg(LOCAL), three_clients(), tmp_path / "plain")
    assert encode(affr.server.model) == encode(plain.server.model)
    assert list(affr.server.weights.values()) == list(map(float, SIZES))


# Rounds by hand


def accuracy(weights, examples):
    hidden = F.relu(examples.inputs @ weights[W].T + weights[B])
    output = hidden @ weights[V].T + weights[C]
    return (output.argmax(1) == examples.targets["classify"]).double().mean().item()


def negative_loss(weights, examples):
    return -loss(weights, examples).item()


def by_hand(federation, rounds, quality, step, rule, start=SIZES, scale=1 / 3):
    model, data = initial(federation), [federation.data(c) for c in federation.client_ids]
    alpha, last = [size / sum(start) for size in start], []
    for t in range(rounds):
        received = [quality(model, part.validation) for part in data]
        trained = [descend(model, part.train, 0.2, 2) for part in data]
        if last:
            gaps = [own - other for own, other in zip(last, received, strict=True)]
            alpha = rule(alpha, gaps, (1 - t / rounds) * step * scale)
        last = [quality(own, part.validation) for own, part in zip(trained, data, strict=True)]
        model = average(trained, alpha)
    return model, alpha


@pytest.mark.parametrize(
    ("options", "quality", "rule", "scale"),
    [
        ({}, accuracy, gap_weights, 1 / 3),
        ({"per_client": False, "step": 0.3}, accuracy, gap_weights, 1),
        ({"gap": "loss", "dead_zone": 0.0}, negative_loss, gap_weights, 1 / 3),
        (
            {"gap": "loss", "rule": "printed", "dead_zone": 0.0},
            negative_loss,
            printed_gap_weights,
            1 / 3,
        ),
        (
            {"gap": "loss", "rule": "feddg_ga", "dead_zone": 0.0},
            negative_loss,
            uncentred_gap_weights,
            1 / 3,
        ),
    ],
)
def test_rounds_by_hand(options, quality, rule, scale, tmp_path):
    federation = three_clients()
    server = play(AFFR(LOCAL, **options), federation, tmp_path, rounds=4).server
    step = options.get("step", 0.8)
    model, alpha = by_hand(federation, 4, quality, step, rule, scale=scale)
    assert_close(server.model, model)
    found = [weight / sum(server.weights.values()) for weight in server.weights.values()]
    assert found == pytest.approx(alpha, abs=1e-5)
    assert found != pytest.approx([size / sum(SIZES) for size in SIZES], abs=1e-3)


def test_feddg_ga_starts_from_equal_weights(tmp_path):
    federation = three_clients()
    server = play(FedDGGA(LOCAL), federation, tmp_path, rounds=3).server
    equal = (1, 1, 1)
    model, _ = by_hand(federation, 3, negative_loss, 0.2, uncentred_gap_weights, equal)
    assert_close(server.model, model)


def test_weights_and_gaps_are_noted(tmp_path):
    outcome = play(AFFR(LOCAL, gap="loss", dead_zone=0.0), three_clients(), tmp_path, rounds=2)
    noted = {(row.metric, row.round) for row in outcome.rows if row.client and not row.split}
    assert {("client_weight", 1), ("client_weight", 2), ("generalisation_gap", 2)} <= noted
    assert ("generalisation_gap", 1) not in noted


# The server alone


def one(value):
    return Params({"encoder.w": torch.tensor([float(value)])})


def answered(algorithm, weights, gaps, examples=(20, 30, 50), absent=(), round=1, rounds=20):
    """The server after a round in which client i sends the model i and its gap."""
    names = ["a", "b", "c"][: len(gaps)]

    def script(call):
        if call.client in absent:
            raise ClientFailed(call.client, "asleep")
        number = names.index(call.client)
        return {"model": one(number), "examples": examples[number], "gap": gaps[number]}

    clients = Clients(tuple(names), round, rounds, 0, Scripted(script), len(names))
    return algorithm.round(Server(one(0), dict(zip(names, weights, strict=False))), clients)


WEIGHTS, GAPS = (20.0, 30.0, 50.0), (0.02, -0.01, 0.05)


@pytest.mark.parametrize(
    ("step", "per_client", "round", "expected"),
    [
        (0.2, False, 1, [20, 10, 70]),
        (0.2, False, 11, [20, 20, 60]),
        (0.8, False, 1, [100 / 6, 0, 500 / 6]),
        (0.8, True, 1, [20, 30 - 80 / 3, 50 + 80 / 3]),
    ],
)
def test_golden_numbers(step, per_client, round, expected):
    server = answered(AFFR(step=step, per_client=per_client), WEIGHTS, GAPS, round=round)
    assert list(server.weights.values()) == pytest.approx(expected)
    mean = (expected[1] + 2 * expected[2]) / 100
    assert server.model["encoder.w"].item() == pytest.approx(mean)


@pytest.mark.parametrize("gaps", [(0.1, 0.1, 0.1), (None, None, None), (math.nan, math.inf, 0.3)])
def test_gaps_that_say_nothing_change_nothing(gaps):
    assert answered(AFFR(), WEIGHTS, gaps).weights == dict(zip("abc", WEIGHTS, strict=True))


def test_an_absent_client_keeps_its_weight_and_the_others_share_theirs():
    server = answered(AFFR(step=0.2, per_client=False), WEIGHTS, GAPS, absent=("a",))
    assert server.weights["a"] == 20
    assert server.weights["b"] == pytest.approx(10)
    assert server.weights["c"] == pytest.approx(70)
    assert server.model["encoder.w"].item() == pytest.approx((10 + 2 * 70) / 80)


def test_an_unknown_gap_counts_as_the_mean_one():
    server = answered(AFFR(step=0.2, per_client=False), WEIGHTS, (0.02, None, 0.05))
    assert server.weights["b"] == 30
    assert server.weights["a"] == pytest.approx(70 * 0 / 0.9)
    assert server.weights["c"] == pytest.approx(70)


def test_a_newcomer_starts_with_its_examples():
    server = answered(AFFR(step=0.2), WEIGHTS[:2], (0.0, 0.0, None))
    assert server.weights == {"a": 20.0, "b": 30.0, "c": 50.0}


def test_one_client_counts_for_everything():
    server = answered(AFFR(), WEIGHTS[:1], (0.3,))
    assert server.weights == {"a": 20.0}
    assert server.model["encoder.w"].item() == 0


def test_if_nobody_counts_any_more_all_count_as_in_fedavg():
    algorithm = AFFR(step=1.0, rule="feddg_ga", per_client=False)
    server = answered(algorithm, WEIGHTS, (-0.5, -0.5, -0.5))
    assert server.weights == dict(zip("abc", WEIGHTS, strict=True))
    server = answered(AFFR(), (0.0, 0.0, 100.0), (None, None, None), absent=("c",))
    assert server.model["encoder.w"].item() == pytest.approx(30 / 50)


# Gaps


def test_a_gap_below_one_validation_example_is_none(tmp_path):
    federation = three_clients()  # ten validation examples each
    sent = {}
    for zone in (0.0, 1.0, 11.0):
        outcome = play(AFFR(LOCAL, dead_zone=zone), federation, tmp_path / str(zone), rounds=2)
        sent[zone] = [row.value for row in outcome.rows if row.metric == "generalisation_gap"]
    assert sent[0.0] == sent[1.0] != [0, 0, 0] == sent[11.0]


def test_a_task_without_accuracy_is_named_with_the_way_out(tmp_path):
    members = {f"c{number}": quadratic_member(number, 12) for number in range(2)}
    with pytest.raises(ClientFailed, match=r"c0.*task 'fit' has no accuracy.*set another \"gap\""):
        play(AFFR(LOCAL), Federation(members), tmp_path / "accuracy")
    server = play(AFFR(LOCAL, gap="loss"), Federation(members), tmp_path / "loss", rounds=2).server
    assert sum(server.weights.values()) == pytest.approx(24)


# The imprint attack on pairs of fingerprints, and the client that refuses it


SHAPE = (1, 6, 6)


def prints(count):
    """Pairs of textures, the first of each darker than the second, all of different means."""
    levels = torch.linspace(0.2, 0.8, 2 * count).view(count, 2, 1, 1, 1)
    return levels + 0.2 * (torch.rand(count, 2, *SHAPE, generator=torch.manual_seed(3)) - 0.5)


def between(pictures):
    """Cutoffs that give every picture a bin of its own."""
    means = pictures.flatten(1).mean(1).sort().values
    return torch.cat([torch.tensor([-10.0]), (means[1:] + means[:-1]) / 2])


def contrastive(embeddings):
    return Verification().loss(embeddings, torch.arange(len(embeddings)))


def attacked(pairs, cutoffs, loss_of=contrastive):
    """Recovered pictures, and the slope of the loss by what each original adds to the layer."""
    layer = Imprint(SHAPE, cutoffs)
    head = torch.nn.Sequential(torch.nn.Flatten(2), torch.nn.Linear(36, 5))
    with torch.no_grad():
        head[1].weight.copy_(torch.randn(5, 36, generator=torch.manual_seed(4)))
    pictures = pairs.flatten(0, 1)
    raw = layer.sort(pictures.flatten(1))
    images = layer.back(raw.relu()).view_as(pairs)
    loss = loss_of(head(images))
    *grads, slopes = torch.autograd.grad(loss, [layer.sort.weight, layer.sort.bias, raw])
    return imprinted(*grads), slopes


def test_both_pictures_of_every_pair_are_recovered_from_bins_of_their_own():
    pairs = prints(4)
    pictures = pairs.flatten(0, 1).flatten(1)
    found, _ = attacked(pairs, between(pictures))
    order = pictures.mean(1).argsort()
    torch.testing.assert_close(found, pictures[order], atol=1e-4, rtol=0)


def test_two_pictures_in_one_bin_come_back_as_their_mixture():
    pairs = prints(2)
    pictures = pairs.flatten(0, 1).flatten(1)
    order = pictures.mean(1).argsort()
    cutoffs = between(pictures)
    found, slopes = attacked(pairs, cutoffs[[0, 1, 3]])  # the second and the third share a bin
    weights = slopes[order[1:3], 1]
    mixture = (weights[:, None] * pictures[order[1:3]]).sum(0) / weights.sum()
    torch.testing.assert_close(found[1], mixture, atol=1e-4, rtol=0)
    torch.testing.assert_close(found[[0, 2]], pictures[order[[0, 3]]], atol=1e-4, rtol=0)


def test_a_single_bin_gives_the_mean_weighted_by_gradients():
    """Not so with distances: there the slopes of the two pictures of a pair cancel out."""
    pairs = prints(3)
    found, slopes = attacked(pairs, torch.tensor([-10.0]), lambda rows: rows.square().mean())
    weights = slopes / slopes.sum()
    expected = (weights * pairs.flatten(0, 1).flatten(1)).sum(0, keepdim=True)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("jitter", "refused"), [(0.0, True), (1e-4, True), (1.0, False)])
def test_a_client_refuses_a_first_layer_with_rows_that_are_nearly_alike(jitter, refused):
    federation = tiny_federation(1)
    federation = federation.protected(RefuseImprints())
    model = federation.roster.shared()
    first = next(name for name, tensor in model.items() if tensor.ndim == 2)
    rows = torch.full(model[first].shape, 0.1) + jitter * torch.randn(model[first].shape)
    host = ClientHost(federation, AFFR(LOCAL), 0, 1, StateStore(None))
    call = Call("c0", "train", 1, 0, 0, {"model": Params(model | {first: rows})})
    (reply,) = host.answer([call])
    assert (first in str(reply.error) and "it is not trained" in str(reply.error)) is refused
    assert (reply.error is None) is not refused
