from __future__ import annotations

from statistics import pstdev

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
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    gradient,
    initial,
    loss,
    play,
    scores,
    three_clients,
)

from consort.algorithms import fedala
from consort.algorithms.fedala import FedALA
from consort.algorithms.fedavg import FedAvg
from consort.core.wire import encode
from consort.federation.participation import cohort
from consort.training.local import LocalTraining

LR, STEPS = 0.2, 2
LOCAL = LocalTraining(epochs=STEPS, lr=LR)
NAMES = (W, B, V, C)


class ByHand:
    """The paper's Algorithm 1 with s = 100 %, so that a pass is one step on all examples."""

    def __init__(self, federation, rate, layers):
        self.federation, self.rate, self.top = federation, rate, NAMES[-layers:]
        self.model = initial(federation)
        self.own, self.mixing, self.passes = {}, {}, []

    def mix(self, client, received, remember):
        """The received model with its upper layers mixed into the client's own."""
        if client not in self.own:
            return dict(received)
        train, own = self.federation.data(client).train, self.own[client]
        first = client not in self.mixing
        mixing = self.mixing.get(client, {n: torch.ones_like(own[n]) for n in self.top})
        losses = []
        while not losses or (first and len(losses) < fedala.MOST_PASSES and not calm(losses)):
            point = received | {n: own[n] + (received[n] - own[n]) * mixing[n] for n in self.top}
            losses.append(float(loss(point, train)))
            slope = gradient(point, train)
            mixing = {
                n: (mixing[n] - self.rate * slope[n] * (received[n] - own[n])).clamp(0, 1)
                for n in self.top
            }
        if remember:
            self.mixing[client] = mixing
            self.passes.append(len(losses))
        return received | {n: own[n] + (received[n] - own[n]) * mixing[n] for n in self.top}

    def round(self, present):
        """One round; what every client would be tested with after it."""
        sizes = dict(zip(self.federation.client_ids, SIZES, strict=True))
        trained = {}
        for client in present:
            start = self.mix(client, self.model, remember=True)
            trained[client] = descend(start, self.federation.data(client).train, LR, STEPS)
        self.own |= trained
        self.model = average(list(trained.values()), [sizes[client] for client in trained])
        return {c: self.mix(c, self.model, remember=False) for c in self.federation.client_ids}


def calm(losses):
    return len(losses) >= 10 and pstdev(losses[-10:]) < fedala.CALM


@pytest.mark.parametrize(("layers", "rate"), [(2, 1.0), (2, 300.0), (1, 300.0), (4, 300.0)])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(layers, rate, share, tmp_path):
    federation = three_clients()
    hand = ByHand(federation, rate, layers)
    algorithm = FedALA(LOCAL, layers=layers, share=1.0, mixing_lr=rate)
    outcome = play(algorithm, federation, tmp_path, rounds=4, participation=share)
    for round_ in (1, 2, 3, 4):
        personal = hand.round(cohort(federation.client_ids, share, 0, round_))
        assert_scores(scores(outcome, "personal", round_), federation, personal)
    assert distance(outcome.server.model, hand.model) < 1e-5
    for client, mixing in hand.mixing.items():
        assert distance(outcome.states[client]["mixing"], mixing) < 1e-3
        assert list(outcome.states[client]["own"]) == list(NAMES[-layers:])
    if rate > 1:
        smallest = min(float(m.min()) for mixing in hand.mixing.values() for m in mixing.values())
        assert smallest < 0.5, "choose a rate that moves the mixing"


def test_the_first_mixing_takes_many_passes_and_later_ones_one():
    federation = three_clients()
    hand = ByHand(federation, 1.0, 2)
    for _ in range(3):
        hand.round(federation.client_ids)
    assert hand.passes == [10, 10, 10, 1, 1, 1]


def test_a_mixing_that_is_never_calm_comes_to_an_end(monkeypatch, tmp_path):
    monkeypatch.setattr(fedala, "CALM", 0.0)
    monkeypatch.setattr(fedala, "MOST_PASSES", 23)
    federation = three_clients()
    hand = ByHand(federation, 300.0, 2)
    hand.round(federation.client_ids)
    hand.round(federation.client_ids)
    assert hand.passes == [23, 23, 23]
    algorithm = FedALA(LOCAL, share=1.0, mixing_lr=300.0)
    outcome = play(algorithm, federation, tmp_path, rounds=2, evaluate_every=0)
    assert distance(outcome.server.model, hand.model) < 1e-5


def test_mixing_lies_between_all_of_the_own_and_all_of_the_global(tmp_path):
    federation = tiny_federation(4)
    algorithm = FedALA(LocalTraining(lr=0.1, batch=8), layers=4, mixing_lr=1e4)
    outcome = play(algorithm, federation, tmp_path, rounds=3)
    mixings = [t for state in outcome.states.values() for t in state["mixing"].values()]
    assert min(float(mixing.min()) for mixing in mixings) == 0.0
    assert max(float(mixing.max()) for mixing in mixings) == 1.0


def test_with_a_tiny_rate_it_is_fedavg(tmp_path):
    federation = three_clients()
    mixed = play(FedALA(LOCAL, mixing_lr=1e-9), federation, tmp_path / "ala", rounds=3)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=3)
    assert_close(mixed.server.model, plain.server.model)


def test_the_first_round_is_fedavg_bit_for_bit(tmp_path):
    federation = three_clients()
    mixed = play(FedALA(LOCAL), federation, tmp_path / "ala")
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain")
    assert encode(mixed.server) == encode(plain.server)


class Spy(FedALA):
    """Notes what the mixing is learnt from."""

    def with_a_sample(self, client):
        sampled = super().with_a_sample(client)
        SEEN.append((client.data.train.inputs, sampled.data.train.inputs))
        assert sampled.data.test is client.data.test
        return sampled


SEEN = []


def test_the_mixing_is_learnt_from_a_share_of_the_examples(tmp_path):
    SEEN.clear()
    play(Spy(LOCAL, share=0.37), three_clients(), tmp_path, rounds=3, evaluate_every=0)
    assert [len(part) for _, part in SEEN] == [5, 8, 11] * 3
    for whole, part in SEEN:
        rows = {tuple(row.tolist()) for row in part}
        assert len(rows) == len(part)
        assert rows < {tuple(row.tolist()) for row in whole}
    assert not torch.equal(SEEN[0][1], SEEN[3][1])


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_are_those_of_the_global_model_whatever_the_mixing_saw():
    """The trained statistics start from the received ones, though the mixing ran over the data."""
    federation = tiny_federation(2, model={"name": "normed"})
    still = LocalTraining(lr=0.0, steps=1, batch=64)
    algorithm = FedALA(still, mixing_lr=1.0)
    exchanges, servers = overhear(algorithm, federation, rounds=2)
    for exchange in exchanges[-4:-2]:
        received, sent = (
            model.only("buffers")["buffers.encoder.norm.running_mean"]
            for model in (servers[1].model, exchange.reply.content["model"])
        )
        layer = servers[1].model
        train = federation.data(exchange.call.client).train.inputs
        batch = train @ layer["encoder.layer.weight"].T + layer["encoder.layer.bias"]
        torch.testing.assert_close(sent, 0.9 * received + 0.1 * batch.mean(0))
