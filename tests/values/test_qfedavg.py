from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import tiny_federation
from tests.values.by_hand import (
    SIZES,
    LeastSquares,
    assert_close,
    average,
    descend,
    distance,
    initial,
    loss,
    play,
    quadratic_member,
    three_clients,
)

from consort.algorithms.fedavg import FedAvg
from consort.algorithms.qfedavg import QFedAvg
from consort.data.examples import Splits
from consort.errors import ClientFailed, UsageError
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.participation import cohort
from consort.models.registry import ModelSpec
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.scoring import score

STEPS, LR = 2, 0.2
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def by_hand(federation, cohorts, q, lr=LR):
    """Algorithm 2 of the paper, with every client counted by its examples."""
    sizes = dict(zip(federation.client_ids, SIZES, strict=True))
    w, big_l = initial(federation), 1 / lr
    for present in cohorts:
        above, below = {n: torch.zeros_like(t) for n, t in w.items()}, 0.0
        for client in present:
            train = federation.data(client).train
            f = float(loss(w, train))
            trained = descend(w, train, lr, STEPS)
            gradient = {n: big_l * (w[n] - trained[n]) for n in w}
            square = sum(float(g.square().sum()) for g in gradient.values())
            h = q * f ** (q - 1) * square + big_l * f**q
            above = {n: above[n] + sizes[client] * f**q * gradient[n] for n in w}
            below += sizes[client] * h
        w = {n: w[n] - above[n] / below for n in w}
    return w


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(q, share, tmp_path):
    federation = three_clients()
    cohorts = [cohort(federation.client_ids, share, 0, round_) for round_ in (1, 2, 3)]
    outcome = play(QFedAvg(LOCAL, q=q), federation, tmp_path, rounds=3, participation=share)
    assert_close(outcome.server.model, by_hand(federation, cohorts, q))


def test_without_fairness_it_is_fedavg(tmp_path):
    federation = three_clients()
    fair = play(QFedAvg(LOCAL, q=0.0), federation, tmp_path / "fair", rounds=3)
    plain = play(FedAvg(LOCAL), federation, tmp_path / "plain", rounds=3)
    assert_close(fair.server.model, plain.server.model)


def test_the_rate_of_the_round_is_the_inverse_of_the_curvature(tmp_path):
    federation = three_clients()
    local = LocalTraining(epochs=STEPS, lr=LR, warmup=1)
    outcome = play(QFedAvg(local, q=2.0), federation, tmp_path)
    expected = by_hand(federation, [federation.client_ids], 2.0, lr=LR / 2)
    assert_close(outcome.server.model, expected)


def spread(model, members):
    losses = []
    for member in members.values():
        train = member.load().train
        error = train.inputs @ model["heads.fit.weight"][0] - train.targets["fit"]
        losses.append(float(0.5 * error.square().mean()))
    return max(losses) - min(losses)


def test_the_losses_of_unlike_clients_come_closer():
    """The many examples of one client no longer leave the few of the other behind."""
    members = {"many": quadratic_member(1, 60), "few": quadratic_member(2, 10)}
    gaps = []
    for q in (0.0, 1.0, 4.0):
        algorithm = QFedAvg(LocalTraining(lr=0.1, batch=60), q=q)
        run = Run(Federation(members), algorithm, Schedule(rounds=200, evaluate_every=0))
        run.go()
        gaps.append(spread(run.server.model, members))
    assert gaps[0] > 1.5 * gaps[1] > 2 * gaps[2] > 0


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_are_averaged_by_examples():
    federation = tiny_federation(3, model={"name": "normed"})
    exchanges, servers = overhear(QFedAvg(LOCAL, q=2.0), federation, rounds=1)
    replies = [e.reply.content for e in exchanges if not e.call.evaluation]
    expected = average([r["statistics"] for r in replies], [r["examples"] for r in replies])
    assert len(expected) == 2
    assert_close(servers[1].model.only("buffers"), expected)
    assert distance(servers[1].model.only("buffers"), servers[0].model.only("buffers")) > 0.01


@pytest.mark.usefixtures("normed_encoder")
@pytest.mark.parametrize("batchnorm", ["average", "local", "recompute"])
def test_the_loss_is_that_of_the_model_as_it_is_tested(batchnorm):
    federation = tiny_federation(1, model={"name": "normed"}, batchnorm=batchnorm)
    data = federation.data("c0")
    tasks = dict(federation.members["c0"].tasks)
    model = federation.blueprint("c0").fresh()
    for buffer in ("running_mean", "running_var"):
        model.encoder.norm.get_buffer(buffer).add_(0.5)
    client = Client("c0", model, tasks, data, {}, torch.Generator(), 1, 1)
    found = QFedAvg(LocalTraining(task_weights={"classify": 2.0})).loss(client)
    tested = score(model, tasks, Splits(data.train, data.train, data.train))["test"]
    assert abs(found - 2 * tested["tasks"]["classify"]["loss"]) < 1e-5


def test_a_learning_rate_of_zero_is_refused():
    with pytest.raises(UsageError, match=r"divides by the learning rate: set local\.lr above 0"):
        QFedAvg(LocalTraining(lr=0.0))


@dataclass(frozen=True)
class Negative(LeastSquares):
    def loss(self, output, target):
        return super().loss(output, target) - 1e3


def test_a_negative_loss_is_refused():
    splits = quadratic_member(1, 20).load()
    linear = ModelSpec.of({"name": "mlp", "hidden": []})
    federation = Federation({"a": Member.of({"fit": Negative()}, linear, splits)})
    with pytest.raises(ClientFailed, match="client a: its loss is negative"):
        Run(federation, QFedAvg(LOCAL), Schedule(rounds=1)).go()


def test_a_client_that_has_nothing_left_to_learn_does_not_disturb(tmp_path):
    """A loss of exactly 0 has no negative power."""
    member = quadratic_member(1, 20)
    splits = member.load()
    splits.train.inputs.zero_()
    splits.train.targets["fit"].zero_()
    members = {"done": Member.of(member.tasks, member.model, splits), "b": quadratic_member(2, 20)}
    outcome = play(QFedAvg(LOCAL, q=0.5), Federation(members), tmp_path, rounds=2)
    assert bool(torch.isfinite(outcome.server.model["heads.fit.weight"]).all())
