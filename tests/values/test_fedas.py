from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.contract.helpers import overhear
from tests.helpers import TWO_TASKS, tiny_federation, tiny_member
from tests.values.by_hand import (
    ENCODER,
    B,
    LeastSquares,
    W,
    assert_close,
    assert_scores,
    average,
    descend,
    distance,
    gradient,
    initial,
    play,
    quadratic_member,
    scores,
    three_clients,
)
from torch.nn import functional as F

from consort.algorithms.fedas import FedAS
from consort.data.examples import Examples, Splits
from consort.engines.states import StateStore
from consort.errors import ClientFailed
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.federation.participation import cohort
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.local import LocalTraining

LR, STEPS, ALIGNMENT = 0.2, 2, 0.5
LOCAL = LocalTraining(epochs=STEPS, lr=LR)


def features(weights, inputs):
    return F.relu(inputs @ weights[W].T + weights[B])


def aligned(encoder, own, examples, rate):
    """One step of the received encoder towards the class means of the own one."""
    labels = examples.targets["classify"]
    means = {}
    for label in set(labels.tolist()):
        means[label] = features(own, examples.inputs[labels == label]).mean(0)
    targets = torch.stack([means[label] for label in labels.tolist()])
    leaves = {n: encoder[n].clone().requires_grad_() for n in ENCODER}
    ((features(leaves, examples.inputs) - targets) ** 2).mean().backward()
    return {n: encoder[n] - rate * leaves[n].grad for n in ENCODER}


def information(weights, examples):
    return sum(float(slope.square().sum()) for slope in gradient(weights, examples).values())


@pytest.mark.parametrize("rate", [0.0, 0.01, ALIGNMENT])
@pytest.mark.parametrize("share", [1.0, 0.7])
def test_rounds_follow_the_paper(rate, share, tmp_path):
    federation = three_clients()
    algorithm = FedAS(LOCAL, alignment_lr=rate)
    outcome = play(algorithm, federation, tmp_path, rounds=3, participation=share)
    start = initial(federation)
    encoder, own = {name: start[name] for name in ENCODER}, {}
    for round_ in (1, 2, 3):
        trained = {}
        for client in cohort(federation.client_ids, share, 0, round_):
            train = federation.data(client).train
            received = encoder
            if client in own:
                received = aligned(encoder, own[client], train, rate)
            trained[client] = descend(own.get(client, start) | received, train, LR, STEPS)
        weights = [information(m, federation.data(c).train) for c, m in trained.items()]
        encoder = average([{n: m[n] for n in ENCODER} for m in trained.values()], weights)
        own |= trained
        tested = {c: own.get(c, start | encoder) for c in federation.client_ids}
        assert_scores(scores(outcome, "personal", round_), federation, tested)
    assert_close(outcome.server.encoder, encoder)
    for client, model in own.items():
        assert_close(outcome.states[client]["own"], model)


def test_alignment_moves_the_encoder(tmp_path):
    federation = three_clients()
    plain, moved = (
        play(FedAS(LOCAL, alignment_lr=rate), federation, tmp_path / str(rate), rounds=2).server
        for rate in (0.0, ALIGNMENT)
    )
    assert distance(plain.encoder, moved.encoder) > 1e-3


def test_information_is_added_up_over_batches():
    federation, store = three_clients(), StateStore()
    algorithm = FedAS(LocalTraining(lr=LR, batch=7))
    exchanges, _ = overhear(algorithm, federation, rounds=1, store=store)
    answers = {e.call.client: e.reply.content for e in exchanges if not e.call.evaluation}
    assert answers.keys() == set(federation.client_ids)
    for client, answer in answers.items():
        own, train = store.load(client, (9, 0))["own"], federation.data(client).train
        expected = sum(information(own, part) for part in train.batches(7))
        assert answer.keys() == {"encoder", "information"}
        assert abs(answer["information"] - expected) < 1e-5 * expected


def test_tasks_without_classes_are_named():
    federation = Federation({"a": quadratic_member(1, 20)})
    with pytest.raises(ClientFailed, match="client a: fedas aligns encoders by the classes"):
        Run(federation, FedAS(LOCAL), Schedule(rounds=1)).go()


def test_every_task_with_classes_has_its_own_means():
    """With two tasks that have the same labels, the pull is that of one, twice."""
    member = tiny_member("a", 20, tasks={"one": 3, "two": 3})
    train = member.load().train
    twins = Examples(train.inputs, dict.fromkeys(("one", "two"), train.targets["one"]))
    splits = Splits(twins, twins, twins)
    encoders = []
    for tasks, rate in ((("one",), 0.2), (("one", "two"), 0.1)):
        part = Splits(
            *(half.only(tasks) for half in (splits.train, splits.validation, splits.test))
        )
        chosen = {task: member.tasks[task] for task in tasks}
        still = LocalTraining(lr=0.0)
        federation = Federation({"a": Member.of(chosen, member.model, part)})
        exchanges, _ = overhear(FedAS(still, alignment_lr=rate), federation, rounds=2)
        encoders.append([e.reply.content["encoder"] for e in exchanges if not e.call.evaluation])
    assert_close(encoders[0][1], encoders[1][1])
    assert distance(encoders[0][0], encoders[0][1]) > 1e-3


def test_labels_need_not_begin_at_zero_nor_follow_each_other():
    """Classes 8, 1 and 5 of nine pull like classes 0, 1 and 2."""
    member = tiny_member("a", 20, tasks={"classify": 9})
    inputs = member.load().train.inputs
    encoders = []
    for names in ([0, 1, 2], [8, 1, 5]):
        labels = torch.tensor(names)[torch.arange(20) % 3]
        examples = Examples(inputs, {"classify": labels})
        splits = Splits(examples, examples, examples)
        federation = Federation({"a": Member.of(member.tasks, member.model, splits)})
        algorithm = FedAS(LocalTraining(lr=0.0), alignment_lr=ALIGNMENT)
        _, servers = overhear(algorithm, federation, rounds=2)
        encoders.append(servers[-1].encoder)
    assert_close(*encoders)
    assert distance(encoders[0], federation.roster.shared("encoder")) > 1e-3


def test_two_tasks_take_part(tmp_path):
    outcome = play(FedAS(LOCAL), tiny_federation(3, tasks=TWO_TASKS), tmp_path, rounds=2)
    assert {row.task for row in outcome.rows if row.split == "test"} == set(TWO_TASKS)


@pytest.mark.usefixtures("normed_encoder")
def test_statistics_have_the_weights_of_the_encoder():
    federation = tiny_federation(3, model={"name": "normed"})
    exchanges, servers = overhear(FedAS(LOCAL), federation, rounds=1)
    replies = [e.reply.content for e in exchanges if not e.call.evaluation]
    weights = [reply["information"] for reply in replies]
    assert_close(servers[1].encoder, average([r["encoder"] for r in replies], weights))
    assert any(name.startswith("buffers.") for name in servers[1].encoder)


@dataclass(frozen=True)
class Indifferent(LeastSquares):
    def loss(self, output, target):
        return 0.0 * output.sum()


def test_clients_that_have_nothing_to_learn_have_a_plain_mean(tmp_path):
    """Without a gradient there is no information, and without weights there is no mean."""
    member = tiny_member("a", 20)
    indifferent = Member.of({"classify": Indifferent()}, member.model, member.load())
    federation = Federation({"a": indifferent, "b": indifferent})
    outcome = play(FedAS(LOCAL), federation, tmp_path)
    assert_close(outcome.server.encoder, federation.roster.shared("encoder"))
