from __future__ import annotations

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import MLP, TWO_TASKS, raw_bytes, tiny_federation
from tests.values.by_hand import (
    SIZES,
    B,
    C,
    V,
    W,
    assert_close,
    assert_scores,
    average,
    distance,
    initial,
    play,
    scores,
    three_clients,
)
from torch.nn import functional as F

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.feddbe import Biased, FedDBE
from consort.core.wire import tensors_in
from consort.engines.states import StateStore
from consort.federation.participation import cohort
from consort.training.client import Client
from consort.training.local import LocalTraining

LR, STEPS = 0.2, 3
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def features(weights, examples):
    return F.relu(examples.inputs @ weights[W].T + weights[B])


def descend(weights, bias, examples, kappa, mu, consensus, trace=None):
    """Gradient descent on cross entropy of biased features and on the mean regulariser."""
    weights, bias, past = dict(weights), bias.clone(), None
    for _ in range(STEPS):
        leaves = {n: t.clone().requires_grad_() for n, t in weights.items()}
        shift = bias.clone().requires_grad_()
        z = features(leaves, examples)
        if trace is not None:
            trace.append(z.detach().mean(0))
        logits = (z + shift) @ leaves[V].T + leaves[C]
        loss = F.cross_entropy(logits, examples.targets["classify"])
        if consensus is not None:
            mean = z.mean(0)
            past = mean.detach() if past is None else past
            running = (1 - mu) * past + mu * mean
            past = running.detach()
            loss = loss + kappa * (0.5 * (running - consensus) ** 2).mean()
        loss.backward()
        weights = {n: weights[n] - LR * leaf.grad for n, leaf in leaves.items()}
        if consensus is not None:
            bias = bias - LR * shift.grad
    return weights, bias


def agree(federation, present):
    """The mean feature during plain local epochs, by examples."""
    start, means = initial(federation), []
    for client in present:
        trace = []
        zero = torch.zeros(4)
        descend(start, zero, federation.data(client).train, 0.0, 0.1, None, trace)
        means.append({"z": torch.stack(trace).mean(0)})
    return average(means, sizes(federation, present))["z"]


def sizes(federation, present):
    known = dict(zip(federation.client_ids, SIZES, strict=True))
    return [known[client] for client in present]


def with_bias(model, bias):
    """The model whose head does what the other one does with biased features."""
    return model | {C: model[C] + model[V] @ bias}


@pytest.mark.parametrize(("kappa", "mu"), [(0.0, 0.1), (1.0, 0.1), (30.0, 1.0)])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(kappa, mu, share, tmp_path):
    federation = three_clients()
    cohorts = [cohort(federation.client_ids, share, 0, round_) for round_ in (1, 2, 3)]
    algorithm = FedDBE(LOCAL, kappa=kappa, momentum=mu)
    outcome = play(algorithm, federation, tmp_path, rounds=3, participation=share)
    consensus = agree(federation, cohorts[0])
    model, biases = initial(federation), {c: torch.zeros(4) for c in federation.client_ids}
    for round_, present in enumerate(cohorts, 1):
        trained = []
        for client in present:
            train = federation.data(client).train
            weights, biases[client] = descend(model, biases[client], train, kappa, mu, consensus)
            trained.append(weights)
        model = average(trained, sizes(federation, present))
        everyone = dict.fromkeys(federation.client_ids, model)
        assert_scores(scores(outcome, "global", round_), federation, everyone)
        personal = {client: with_bias(model, bias) for client, bias in biases.items()}
        assert_scores(scores(outcome, "personal", round_), federation, personal)
    torch.testing.assert_close(outcome.server.consensus, consensus)
    assert_close(outcome.server.model, model)
    for client, state in outcome.states.items():
        found = state.get("bias", torch.zeros(4))
        torch.testing.assert_close(found, biases[client], atol=2e-6, rtol=0)
    assert max(float(bias.abs().max()) for bias in biases.values()) > 0.01


def test_the_regulariser_moves_the_encoder(tmp_path):
    federation = three_clients()
    free, held = (
        play(FedDBE(LOCAL, kappa=kappa), federation, tmp_path / str(kappa), rounds=2).server.model
        for kappa in (0.0, 50.0)
    )
    assert float((free[W] - held[W]).abs().max()) > 1e-3


def test_a_strong_regulariser_holds_the_mean_feature(tmp_path):
    federation = three_clients()
    away = []
    for kappa in (0.0, 50.0):
        algorithm = FedDBE(LOCAL, kappa=kappa, momentum=1.0)
        server = play(algorithm, federation, tmp_path / str(kappa), rounds=8).server
        means = [
            features(server.model, federation.data(c).train).mean(0) for c in federation.client_ids
        ]
        away.append(
            float((average([{"z": m} for m in means], SIZES)["z"] - server.consensus).norm())
        )
    assert away[1] < away[0] / 3


def test_the_running_mean_spans_batches_and_only_the_present_one_has_a_gradient():
    federation = three_clients()
    train = federation.data("c2").train
    model = federation.blueprint("c2").fresh()
    client = Client("c2", model, {}, federation.data("c2"), {}, torch.Generator(), 1, 1)
    consensus = torch.tensor([0.1, -0.2, 0.3, 0.0])
    biased = Biased(model.encoder, torch.zeros(4))
    objective = FedDBE(kappa=2.0, momentum=0.25).regularised(biased, consensus)
    parts = list(train.batches(10))
    running = None
    for part in parts:
        (term,) = objective(client, part).values()
        mean = model.encoder(part.inputs).mean(0)
        old = mean.detach() if running is None else running
        running = 0.75 * old + 0.25 * mean
        expected = 2.0 * (0.5 * (running - consensus) ** 2).sum() / 4
        running = running.detach()
        torch.testing.assert_close(term, expected)
        ours, theirs = (
            torch.autograd.grad(loss, model.encoder.parameters()) for loss in (term, expected)
        )
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)
            assert float(one.abs().max()) > 0
    assert len(parts) == 3


def test_biases_differ_and_are_never_said():
    federation, store = tiny_federation(3), StateStore()
    exchanges, servers = overhear(FedDBE(LOCAL), federation, rounds=3, store=store)
    said = {
        raw_bytes(tensor)
        for exchange in exchanges
        for _, tensor in tensors_in([exchange.call.payload, exchange.reply.content])
    }
    biases = [store.load(client, (9, 0))["bias"] for client in federation.client_ids]
    assert not {raw_bytes(bias) for bias in biases} & said
    assert len({raw_bytes(bias) for bias in biases}) == 3
    assert raw_bytes(servers[-1].consensus) in said


def test_the_consensus_is_found_once_and_stays():
    exchanges, servers = overhear(FedDBE(LOCAL), tiny_federation(3), rounds=3)
    assert servers[0].consensus is None
    assert len({raw_bytes(server.consensus) for server in servers[1:]}) == 1
    surveyed = [e.call.round for e in exchanges if e.call.method == "survey"]
    assert surveyed == [1, 1, 1]


@pytest.mark.parametrize("tasks", [{"classify": 3}, TWO_TASKS], ids=len)
def test_the_model_that_clients_share_is_left_without_a_bias(tasks):
    federation = tiny_federation(2, tasks=tasks, model=MLP)
    exchanges, _ = overhear(FedDBE(LOCAL), federation)
    names = list(federation.blueprint("c0").model.slots())
    assert names == list(federation.roster.model("c0"))
    inputs = federation.data("c0").test.inputs
    bare = federation.blueprint("c0").fresh()
    torch.testing.assert_close(bare.encoder(inputs), bare.encoder.layers[0](inputs).relu())
    last = exchanges[-1].reply.content
    assert last["global"] != last["personal"]
    assert all(
        last["global"]["test"]["tasks"][t] != last["personal"]["test"]["tasks"][t] for t in tasks
    )


def test_the_initial_phase_changes_no_model(tmp_path):
    """Without the regulariser, and while biases are zero, a step is FedAvg's."""
    federation = three_clients()
    one_step = LocalTraining(epochs=1, lr=LR)
    dbe = play(FedDBE(one_step, kappa=0.0), federation, tmp_path / "dbe")
    plain = play(FedAvg(one_step), federation, tmp_path / "plain")
    assert_close(dbe.server.model, plain.server.model)


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_are_averaged_by_examples():
    federation = tiny_federation(3, model={"name": "normed"})
    exchanges, servers = overhear(FedDBE(LOCAL), federation, rounds=1)
    replies = [e.reply.content for e in exchanges if e.call.method == "train"]
    expected = average([r["model"].only("buffers") for r in replies], [30, 31, 32])
    assert_close(servers[1].model.only("buffers"), expected)
    assert distance(servers[1].model.only("buffers"), servers[0].model.only("buffers")) > 0.01


def test_what_is_tuned_before_the_test_is_the_model_and_its_bias(tmp_path):
    federation = three_clients()
    outcome = play(FedDBE(LOCAL), federation, tmp_path, rounds=2, tuning_epochs=STEPS)
    tuned = {}
    for client, state in outcome.states.items():
        train = federation.data(client).train
        start = dict(outcome.server.model), state["bias"]
        tuned[client] = with_bias(*descend(*start, train, 0.0, 0.1, outcome.server.consensus))
    assert_scores(scores(outcome, "tuned", 2), federation, tuned)
