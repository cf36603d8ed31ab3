"""FedAvgM, FedAdagrad, FedAdam and FedYogi, and the same optimisers in other algorithms."""

from __future__ import annotations

import math

import pytest
import torch
from tests.contract.helpers import assert_same_outcome, finish
from tests.contract.test_resuming import PowerCut, PullsThePlug
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    assert_close,
    average,
    descend,
    distance,
    initial,
    play,
    three_clients,
)

from consort.aggregation.server_optimizer import ServerOptimizer
from consort.algorithms._server_optimizer import with_server_optimizer
from consort.algorithms.fedadagrad import FedAdagrad
from consort.algorithms.fedadam import FedAdam
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedavgm import FedAvgM
from consort.algorithms.fedper import FedPer
from consort.algorithms.fedprox import FedProx
from consort.algorithms.fedyogi import FedYogi
from consort.algorithms.scaffold import Scaffold
from consort.core.params import Params
from consort.errors import UsageError
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

LR = 0.2
LOCAL = LocalTraining(epochs=2, lr=LR)
ETA, BETA1, BETA2, TAU = 0.05, 0.8, 0.9, 0.01
ADAPTIVE = {
    FedAdagrad: lambda v, d2: v + d2,
    FedYogi: lambda v, d2: v - (1 - BETA2) * d2 * torch.sign(v - d2),
    FedAdam: lambda v, d2: BETA2 * v + (1 - BETA2) * d2,
}


def changes(federation, x):
    """Delta: what FedAvg would add to x."""
    models = [descend(x, federation.data(c).train, LR, 2) for c in federation.client_ids]
    mean = average(models, SIZES)
    return {n: mean[n] - x[n] for n in x}


@pytest.mark.parametrize("kind", list(ADAPTIVE))
def test_adaptive_rounds_follow_the_paper(kind, tmp_path):
    """Algorithm 2: m, v and x by hand, from m = 0 and v = tau²."""
    options = {"server_lr": ETA, "beta1": BETA1, "tau": TAU}
    options |= {} if kind is FedAdagrad else {"beta2": BETA2}
    federation = three_clients()
    x = initial(federation)
    m = {n: torch.zeros_like(t) for n, t in x.items()}
    v = {n: torch.full_like(t, TAU**2) for n, t in x.items()}
    for _ in range(3):
        delta = changes(federation, x)
        m = {n: BETA1 * m[n] + (1 - BETA1) * delta[n] for n in x}
        v = {n: ADAPTIVE[kind](v[n], delta[n] ** 2) for n in x}
        x = {n: x[n] + ETA * m[n] / (v[n].sqrt() + TAU) for n in x}
    outcome = play(kind(LOCAL, **options), federation, tmp_path, rounds=3)
    assert distance(outcome.server.model, x) < 1e-5
    assert_close(outcome.server.memory["m"], m)
    assert_close(outcome.server.memory["v"], v)


@pytest.mark.parametrize(("momentum", "eta"), [(0.9, 1.0), (0.5, 0.3)])
def test_momentum_follows_the_paper(momentum, eta, tmp_path):
    federation = three_clients()
    x = initial(federation)
    m = {n: torch.zeros_like(t) for n, t in x.items()}
    for _ in range(3):
        delta = changes(federation, x)
        m = {n: momentum * m[n] + delta[n] for n in x}
        x = {n: x[n] + eta * m[n] for n in x}
    outcome = play(FedAvgM(LOCAL, momentum, eta), federation, tmp_path, rounds=3)
    assert_close(outcome.server.model, x)
    assert set(outcome.server.memory) == {"m"}


def test_without_momentum_it_is_fedavg(tmp_path):
    federation = three_clients()
    still = play(FedAvgM(LOCAL, momentum=0.0), federation, tmp_path / "m", rounds=2)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=2)
    assert_close(still.server.model, plain.server.model)


def test_with_great_tau_adam_is_a_slow_fedavg(tmp_path):
    """v and the root of it vanish beside tau: the step is eta / (2 tau) times m."""
    federation = three_clients()
    tau = 1e3
    algorithm = FedAdam(LOCAL, server_lr=2 * tau, beta1=0.0, beta2=1.0, tau=tau)
    slow = play(algorithm, federation, tmp_path / "adam", rounds=2)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=2)
    assert distance(slow.server.model, plain.server.model) < 1e-5


def test_constant_changes_have_closed_forms():
    """Everybody always wants one step of 1 more."""
    one, zero = Params({"w": torch.ones(1)}), Params({"w": torch.zeros(1)})

    def after(optimizer, steps):
        x, memory = zero, {}
        for _ in range(steps):
            x, memory = optimizer.step(x, x + one, memory)
        return x["w"].item(), memory

    _, memory = after(ServerOptimizer("adam", beta1=0.9, beta2=0.99), 20)
    assert abs(memory["m"]["w"].item() - (1 - 0.9**20)) < 1e-6
    assert abs(memory["v"]["w"].item() - (1 - 0.99**20 * (1 - 1e-6))) < 1e-6
    x, memory = after(ServerOptimizer("adagrad", lr=1.0, beta1=0.0, tau=1e-9), 20)
    assert abs(memory["v"]["w"].item() - 20) < 1e-4
    assert abs(x - sum(1 / math.sqrt(t) for t in range(1, 21))) < 1e-4
    _, memory = after(ServerOptimizer("yogi", beta2=0.9, tau=1e-3), 5)
    assert abs(memory["v"]["w"].item() - 0.5) < 1e-5  # it grows by 1 - beta2 at a time


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("rule", ["momentum", "adagrad", "yogi", "adam"])
def test_statistics_of_batchnorm_are_averaged_whatever_the_rule(rule, tmp_path):
    local = LocalTraining(lr=0.0)
    federation = tiny_federation(3, model={"name": "normed"})
    kind = with_server_optimizer(FedAvg)
    found = play(kind(local, server_optimizer=ServerOptimizer(rule)), federation, tmp_path / rule)
    plain = play(FedAvg(local), federation, tmp_path / "plain")
    buffers = plain.server.model.only("buffers")
    assert buffers
    assert found.server.model.only("buffers").equals(buffers)


def test_any_averaging_algorithm_can_have_one(tmp_path):
    federation = three_clients()
    optimizer = ServerOptimizer("adam", lr=0.05)
    same = with_server_optimizer(FedAvg)(LOCAL, server_optimizer=optimizer)
    one = play(same, federation, tmp_path / "one", rounds=3)
    other = play(FedAdam(LOCAL, 0.05), federation, tmp_path / "other", rounds=3)
    assert one.server.model.equals(other.server.model)
    for kind, entry in ((FedProx, "model"), (FedPer, "encoder")):
        plain = play(kind(LOCAL), federation, tmp_path / entry, rounds=2)
        moved = play(
            with_server_optimizer(kind)(LOCAL, server_optimizer=optimizer),
            federation,
            tmp_path / f"{entry}-adam",
            rounds=2,
        )
        assert set(moved.server.memory) == {entry}
        assert not getattr(moved.server, entry).equals(getattr(plain.server, entry))


def test_without_beta_and_with_rate_one_nothing_changes(tmp_path):
    federation = three_clients()
    still = ServerOptimizer("momentum", lr=1.0, beta1=0.0)
    adaptive = with_server_optimizer(FedPer)(LOCAL, server_optimizer=still)
    one = play(adaptive, federation, tmp_path / "one", rounds=3)
    two = play(FedPer(LOCAL), federation, tmp_path / "two", rounds=3)
    assert_close(one.server.encoder, two.server.encoder)


def test_an_algorithm_that_does_not_average_has_none():
    with pytest.raises(UsageError, match="Scaffold has no server_optimizer"):
        with_server_optimizer(Scaffold)


def test_promises_of_the_algorithm_are_kept():
    adaptive = with_server_optimizer(FedProx)
    assert adaptive.needed_means() == FedProx.needed_means()
    assert adaptive.known_to_train_only_by_steps()
    assert adaptive is with_server_optimizer(FedProx)
    assert adaptive.__name__ == "FedProx"


def test_memory_survives_workers_and_power_cuts(tmp_path):
    algorithm = with_server_optimizer(FedPer)(
        LOCAL, server_optimizer=ServerOptimizer("yogi", lr=0.05)
    )

    def run(name, **how):
        (tmp_path / name).mkdir(exist_ok=True)
        return Run(three_clients(), algorithm, Schedule(4), folder=tmp_path / name, **how)

    straight = finish(run("straight"))
    assert_same_outcome(finish(run("workers", workers=2)), straight)
    with pytest.raises(PowerCut):
        run("cut", observer=PullsThePlug(("answered", 3))).go()
    assert_same_outcome(finish(run("cut")), straight)
