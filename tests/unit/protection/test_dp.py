"""Noise for whole clients and for examples: its size, its price, and what is refused."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from tests.helpers import ONE_TASK, assert_same, tiny_federation

from consort.algorithms.ditto import Ditto
from consort.algorithms.fedala import FedALA
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedproto import FedProto
from consort.core.algorithm import on_client
from consort.core.messages import Payload
from consort.core.params import Params
from consort.core.randomness import Seeded, generator_for
from consort.data.examples import Examples, Splits
from consort.domains.fingerprints.task import Verification
from consort.errors import ClientFailed, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.site import USES, Site, Use
from consort.models.registry import ModelSpec
from consort.protection.accounting import spent
from consort.protection.dp import Privacy
from consort.protection.dp_sgd import clipped_sums, drawn
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.client import Client
from consort.training.local import LocalTraining

LOCAL = LocalTraining(lr=0.1, batch=16)
EXACT = 1e-9
"""Noise so small that nothing is hidden."""


def finished(privacy=None, algorithm=None, rounds=1, clients=2, **federation):
    members = tiny_federation(clients, **federation).protected(*([privacy] if privacy else []))
    run = Run(members, algorithm or FedAvg(LOCAL), Schedule(rounds=rounds))
    run.go()
    return run


def exact_epsilon(steps: int, noise: float, delta: float) -> float:
    """Of the Gaussian mechanism, repeated: Balle and Wang 2018, Theorem 8."""
    mu = math.sqrt(steps) / noise

    def excess(epsilon):
        first = norm.cdf(mu / 2 - epsilon / mu)
        return first - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 500)


@pytest.mark.parametrize(("steps", "noise"), [(1, 1.0), (10, 2.0), (100, 30.0)])
def test_epsilon_is_an_upper_bound_and_not_far_from_the_exact_one(steps, noise):
    exact = exact_epsilon(steps, noise, 1e-5)
    assert exact <= spent([Use("client", noise, 1.0, steps)], 1e-5) <= 1.15 * exact


def test_rare_use_costs_less_and_nothing_costs_nothing():
    assert spent([], 1e-5) == 0.0
    assert steps(0.1, 10) < steps(1.0, 10)
    both = spent([Use("example", 1.0, 0.1, 10), Use("example", 1.0, 0.2, 10)], 1e-5)
    assert steps(0.1, 20) < both < steps(0.2, 20)


def steps(rate: float, count: int, noise: float = 1.0) -> float:
    """The epsilon of steps that are all alike."""
    return spent([Use("example", noise, rate, count)], 1e-5)


def test_uses_of_one_kind_are_counted_together():
    site, state = Site(), {}
    for rate, count in ((0.5, 3), (0.25, 1), (0.5, 2)):
        site.charge(state, Use("example", 1.0, rate, count))
    assert state == {USES: [["example", 1.0, 0.25, 1], ["example", 1.0, 0.5, 5]]}


def test_the_noise_of_a_client_has_the_right_size_and_its_update_is_clipped():
    privacy = Privacy("client", clip=2.0, noise=0.5)
    sent = Params({"w": torch.full((40_000,), 3.0)})
    answer = {"model": sent + Params({"w": torch.ones(40_000)}), "examples": 7}
    found = privacy.protected(answer, {"model": sent}, Seeded(generator_for(0, "noise")))
    update = found["model"] - sent
    assert found["examples"] == 7
    assert float(update["w"].mean()) == pytest.approx(2.0 / 200, abs=0.02)
    assert float(update["w"].std()) == pytest.approx(1.0, rel=0.02)


def test_clients_without_noise_send_their_clipped_updates():
    start = tiny_federation(2).roster.shared()
    plain = finished().server.model - start
    assert (finished(Privacy("client", 100.0, EXACT)).server.model - start - plain).norm() < 1e-5
    short = finished(Privacy("client", 0.01, EXACT)).server.model - start
    assert 0.001 < short.norm() <= 0.01 + 1e-6


def test_what_was_spent_is_in_the_history_and_grows():
    privacy = Privacy("client", noise=3.0)
    rows = [row for row in finished(privacy, rounds=2).history if row.metric == "epsilon"]
    expected = [steps(1.0, rounds, 3.0) for rounds in (1, 1, 2, 2)]
    assert [row.value for row in rows] == expected
    assert {row.client for row in rows} == {"c0", "c1"}


def test_examples_cost_by_how_often_each_is_used():
    rows = list(finished(Privacy("example"), rounds=2).history)
    found = {r.client: r.value for r in rows if (r.metric, r.round) == ("epsilon", 2)}
    assert found["c0"] == steps(16 / 30, 4)  # 30 examples: two steps an epoch
    assert found["c1"] == steps(16 / 31, 4)


def test_clipped_sums_are_those_of_one_example_after_the_other():
    grads = [torch.randn(5, 3, 2), torch.randn(5, 4)]
    expected = [torch.zeros(3, 2), torch.zeros(4)]
    for one in range(5):
        length = math.sqrt(sum(float(grad[one].square().sum()) for grad in grads))
        for total, grad in zip(expected, grads, strict=True):
            total += grad[one] * min(1.0, 2.0 / length)
    for found, right in zip(clipped_sums(grads, 2.0), expected, strict=True):
        assert torch.allclose(found, right, atol=1e-6)


@pytest.mark.parametrize("tasks", [ONE_TASK, {"colour": 3, "shape": 4}])
def test_with_all_examples_no_clipping_and_no_noise_a_step_is_the_ordinary_one(tasks):
    whole = FedAvg(LocalTraining(lr=0.1, batch=64, steps=2))
    plain = finished(algorithm=whole, tasks=tasks).server.model
    private = finished(Privacy("example", 1e4, 1e-12), whole, tasks=tasks).server.model
    assert (plain - private).norm() < 1e-5


def test_noise_of_steps_has_the_size_that_is_paid_for():
    still = FedAvg(LocalTraining(lr=1.0, batch=10, steps=1))
    privacy = Privacy("example", clip=1e-6, noise=1e6)  # deviation 1, gradients of no length
    moved = finished(privacy, still, clients=1).server.model - tiny_federation(1).roster.shared()
    assert moved.norm() / math.sqrt(moved.size) == pytest.approx(0.1, rel=0.2)


def test_batches_are_drawn_independently():
    examples = tiny_federation(1).data("c0").train
    sizes = [len(batch) for batch in drawn(examples, 0.3, 400, Seeded(generator_for(0)))]
    assert sum(sizes) / 400 == pytest.approx(9, rel=0.1)
    assert torch.tensor(sizes).float().std() == pytest.approx(math.sqrt(30 * 0.21), rel=0.15)


@pytest.mark.parametrize("level", ["client", "example"])
def test_a_seed_decides_the_noise_on_every_engine(level):
    one, two = (
        Run(tiny_federation(2).protected(Privacy(level)), Ditto(LOCAL), Schedule(rounds=1))
        for _ in range(2)
    )
    two.workers = 2
    one.go()
    two.go()
    assert_same(one.server, two.server)


def test_batchnorm_is_refused(normed_encoder):
    with pytest.raises(UsageError, match=r"BatchNorm \(encoder\.norm in the model of client c0\)"):
        finished(Privacy("example"), model={"name": "normed"})
    finished(Privacy("client"), model={"name": "normed"})


def test_losses_that_compare_examples_are_refused():
    pairs = Examples(torch.rand(4, 2, 1, 16, 16), {"verify": torch.arange(4)})
    spec = ModelSpec.of({"name": "siamese", "scale": 0.125, "norm": "group"})
    member = Member.of({"verify": Verification()}, spec, Splits(pairs, pairs, pairs))
    federation = Federation({"a": member})
    with pytest.raises(UsageError, match="but verify of client a compares examples"):
        Run(federation.protected(Privacy("example")), FedAvg(LOCAL))
    Run(federation.protected(Privacy("client")), FedAvg(LOCAL))


def test_algorithms_that_are_not_covered_are_refused():
    with pytest.raises(UsageError, match="but FedALA may learn from its data in other ways"):
        finished(Privacy("example"), FedALA(local=LOCAL))
    with pytest.raises(ClientFailed, match="has 'prototypes', which privacy"):
        finished(Privacy("client"), FedProto(local=LOCAL))
    with pytest.raises(UsageError, match="counts each example once"):
        finished(Privacy("example"), FedAvg(LocalTraining(balance=True)))


def test_without_opacus_nothing_is_promised(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.accountants.analysis", None)
    with pytest.raises(UsageError, match=r"needs Opacus .* pip install 'fedconsort\[privacy\]'"):
        finished(Privacy("client"))


@dataclass(frozen=True)
class Anything(FedAvg):
    """Has its own way with the data, in a module that might be called fedavg."""

    @on_client
    def train(self, client: Client, model: Params) -> Payload:
        return super().train(client, model) | {"mean": Params({"x": client.data.train.inputs[0]})}


def test_example_level_privacy_is_declared_and_not_a_matter_of_names():
    private = tiny_federation(2).protected(Privacy("example"))
    Anything.__module__ = "mylab.fedavg"
    with pytest.raises(UsageError, match="Anything may learn from its data in other ways"):
        Run(private, Anything(LOCAL))
    Run(private, FedAvg(LOCAL))
