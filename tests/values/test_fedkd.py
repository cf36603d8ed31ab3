from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.contract.helpers import overhear
from tests.values.by_hand import (
    B,
    C,
    V,
    W,
    assert_scores,
    average,
    distance,
    initial,
    play,
    scores,
)
from tests.values.test_fedmh import bank
from tests.values.test_fml import (
    bare,
    common_losses,
    leaves,
    step,
    three_unlike_clients,
    unlike_banks,
)
from torch.nn import functional as F

from consort.aggregation.low_rank import FACTORS
from consort.algorithms.fedkd import BRIDGE, FedKD
from consort.core.randomness import derive
from consort.core.wire import tensors_in
from consort.federation.federation import Federation
from consort.federation.participation import cohort
from consort.training.client import Client
from consort.training.local import LocalTraining

LR, STEPS, ROUNDS = 0.2, 3, 3
LOCAL = LocalTraining(epochs=STEPS, lr=LR)
COMMON = {"name": "mlp", "hidden": [24]}


def truncated(weights, energy):
    """Every matrix with as few singular values as have the energy, by numpy, if shorter."""
    found = {}
    for name, tensor in weights.items():
        found[name] = tensor
        if tensor.ndim == 2:
            left, sigma, right = np.linalg.svd(tensor.double().numpy(), full_matrices=False)
            shares = np.cumsum(sigma**2) / np.sum(sigma**2)
            rank = min(1 + int(np.sum(shares < energy)), len(sigma))
            if rank * sum(tensor.shape) < tensor.numel():
                short = (left[:, :rank] * sigma[:rank]) @ right[:rank]
                found[name] = torch.from_numpy(short).float()
    return found


def features(weights, examples):
    return F.relu(examples.inputs @ weights[W].T + weights[B])


def distil(own, common, bridge, examples, limit):
    """Steps of both models and of the map, each along the gradient of its own loss."""
    for _ in range(STEPS):
        f, g, (m,) = leaves(own), leaves(common), leaves({"m": bridge}).values()
        z_f, z_g = features(f, examples), features(g, examples)
        mine, ours = z_f @ f[V].T + f[C], z_g @ g[V].T + g[C]
        labels = [F.cross_entropy(output, examples.targets["classify"]) for output in (mine, ours)]
        s = sum(labels).detach()
        hidden = (z_f - z_g @ m.T).square().mean()
        losses = [
            label
            + F.kl_div(F.log_softmax(student, 1), F.softmax(teacher, 1), reduction="batchmean") / s
            + hidden / s
            for label, student, teacher in zip(labels, (mine, ours), (ours, mine), strict=True)
        ]
        of_f, of_g, of_m = (
            torch.autograd.grad(loss, list(part.values()), retain_graph=True)
            for loss, part in ((losses[0], f), (losses[1], g), (hidden / s, {"m": m}))
        )
        own, common = step(f, of_f, limit), step(g, of_g, limit)
        bridge = step({"m": m}, of_m, limit)["m"]
    return own, common, bridge


def first_bridge(client, round_, shape):
    generator = torch.Generator().manual_seed(derive(0, round_, client, "train", 0) + 1)
    return (2 * torch.rand(shape, generator=generator) - 1) * shape[1] ** -0.5


@pytest.mark.parametrize(
    ("energies", "clip"), [((1.0, 1.0), 10.0), ((0.5, 0.9), 10.0), ((1.0, 1.0), 0.1)]
)
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_formulas(energies, clip, share, tmp_path):
    federation = three_unlike_clients()
    algorithm = FedKD(LOCAL, COMMON, *energies, clip)
    outcome = play(algorithm, federation, tmp_path, rounds=ROUNDS, participation=share)
    own = {client: initial(federation, client) for client in federation.client_ids}
    common = bare(federation.accompanied(COMMON).roster.shared("companion"))
    bridges = {}
    for round_ in range(1, ROUNDS + 1):
        energy = energies[0] + (round_ - 1) / (ROUNDS - 1) * (energies[1] - energies[0])
        received, sent = truncated(common, energy), []
        for client in cohort(federation.client_ids, share, 0, round_):
            shape = (len(own[client][W]), 24)
            bridge = bridges.get(client, first_bridge(client, round_, shape))
            train = federation.data(client).train
            own[client], trained, bridges[client] = distil(
                own[client], received, bridge, train, clip
            )
            sent.append(truncated(trained, energy))
        common = average(sent, [1] * len(sent))
    assert distance(bare(outcome.server.companion), common) < 1e-5
    for client, bridge in bridges.items():
        assert distance(outcome.states[client]["model"], own[client]) < 1e-5
        assert float((outcome.states[client][BRIDGE] - bridge).abs().max()) < 1e-5
    assert_scores(scores(outcome, "personal", ROUNDS), federation, own)
    received = truncated(common, energies[1])
    assert_scores(scores(outcome, "global", ROUNDS), federation, dict.fromkeys(own, received))


def test_the_energy_rises_evenly_and_what_travels_is_as_long_as_its_factors():
    federation = three_unlike_clients()
    exchanges, servers = overhear(FedKD(LOCAL, COMMON, 0.4, 0.95), federation, rounds=4)
    lengths = []
    for round_, server in enumerate(servers[:-1], start=1):
        energy = 0.4 + (round_ - 1) / 3 * 0.55
        asked = [e for e in exchanges if e.call.round == round_ and not e.call.evaluation]
        ranks = {}
        for name, tensor in server.companion.items():
            if tensor.ndim == 2:
                squares = torch.linalg.svdvals(tensor.double()).square()
                ranks[name] = 1 + int((squares.cumsum(0) < energy * squares.sum()).sum())
        for e in asked:
            sent = dict(e.call.payload["companion"])
            for name, rank in ranks.items():
                rows, columns = server.companion[name].shape
                if rank * (rows + columns) < rows * columns:
                    assert sent[name + FACTORS].shape == (rank, rows + columns)
                else:
                    assert sent[name].shape == (rows, columns)
        lengths.append(sum(t.numel() for _, t in tensors_in(asked[0].call.payload)))
    assert all(length < servers[0].companion.size for length in lengths)


def test_nothing_but_the_common_model_is_said():
    exchanges, _ = overhear(FedKD(LOCAL, COMMON, 0.5, 0.6), three_unlike_clients())
    said = {n for e in exchanges for n, _ in tensors_in([e.call.payload, e.reply.content])}
    assert {name.removesuffix(FACTORS) for name in said} == {
        f"companion.{name}" for name in (W, B, V, C)
    }
    assert any(name.endswith(FACTORS) for name in said)


def test_the_losses_of_two_tasks_add_up():
    federation = Federation({"c0": bank(0)}).accompanied({"name": "mlp", "hidden": [7]})
    model, data = federation.blueprint("c0").fresh(), federation.data("c0")
    tasks = dict(federation.members["c0"].tasks)
    client = Client("c0", model, tasks, data, {}, torch.Generator(), 1, 1)
    bridge = torch.nn.Linear(7, 3, bias=False)
    found = FedKD().mutual_losses(bridge)(client, data.train)
    z_f, z_g = model.encoder(data.train.inputs), model.companion.encoder(data.train.inputs)
    mine, ours = model(data.train.inputs), model.companion(data.train.inputs)
    expected = {
        name: task.loss(mine[name], data.train.targets[name])
        + task.loss(ours[name], data.train.targets[name])
        for name, task in tasks.items()
    }
    pairs = [(mine["identify"], ours["identify"])]
    pairs.append(tuple(torch.stack([o["detect"], 0 * o["detect"]], 1) for o in (mine, ours)))
    apart = F.mse_loss(z_f, bridge(z_g)) + sum(
        F.kl_div(one.log_softmax(1), other.softmax(1), reduction="batchmean")
        for pair in pairs
        for one, other in (pair, pair[::-1])
    )
    assert found.keys() == {"identify", "detect", "distillation"}
    for name, loss in expected.items():
        torch.testing.assert_close(found[name], loss)
    torch.testing.assert_close(found["distillation"], apart / sum(expected.values()))


def test_the_sum_of_losses_has_no_gradient_of_its_own():
    """Of two models without a say about features, the heads' biases learn by hand."""
    federation = three_unlike_clients().accompanied(COMMON)
    model, data = federation.blueprint("c0").fresh(), federation.data("c0")
    tasks = dict(federation.members["c0"].tasks)
    client = Client("c0", model, tasks, data, {}, torch.Generator(), 1, 1)
    found = FedKD().mutual_losses(torch.nn.Linear(24, 4, bias=False))(client, data.train)
    mine, ours = (m(data.train.inputs)["classify"] for m in (model, model.companion))
    (slope,) = torch.autograd.grad(found["distillation"], [model.heads["classify"].bias])
    # The gradient of KL(teacher, student) with respect to logits is student minus teacher.
    by_hand = (mine.softmax(1) - ours.softmax(1)).mean(0) / found["classify"]
    torch.testing.assert_close(slope, by_hand.detach())


def test_the_models_that_clients_share_are_left_without_a_bridge():
    federation = three_unlike_clients()
    overhear(FedKD(LOCAL, COMMON), federation)
    inside = federation.accompanied(COMMON)
    for client in federation.client_ids:
        assert list(inside.blueprint(client).model.slots()) == list(inside.roster.model(client))


def test_unlike_banks_teach_the_common_model_whose_signature_it_is(tmp_path):
    local = LocalTraining(lr=0.3, batch=8)
    losses = common_losses(play(FedKD(local), unlike_banks(), tmp_path, rounds=10))
    assert losses[10] < losses[1] - 0.1


def test_models_that_know_everything_do_not_divide_by_zero(tmp_path):
    federation = three_unlike_clients()
    local = LocalTraining(steps=300, lr=2.0, batch=4)
    outcome = play(FedKD(local, COMMON), federation, tmp_path, rounds=2)
    for state in outcome.states.values():
        assert all(bool(tensor.isfinite().all()) for tensor in state["model"].values())
