from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
from tests.contract.helpers import assert_same_outcome, finish
from tests.helpers import MLP, TWO_TASKS, assert_same, tiny_member, tiny_splits
from torch import Tensor, nn

from consort.algorithms.ditto import Ditto
from consort.algorithms.fedavg import FedAvg
from consort.algorithms.fedprox import FedProx
from consort.core.algorithm import batchable, on_client
from consort.core.messages import Call, Each
from consort.core.params import Params
from consort.core.plugins import Registered, entries
from consort.core.wire import encode
from consort.data.examples import Examples, Splits
from consort.engines import host as host_module
from consort.engines.host import ClientHost
from consort.engines.states import StateStore
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.inputs import number_count
from consort.run.run import Run
from consort.run.schedule import Schedule
from consort.training.cohort import Cohort, can_be_stacked, split_content, stack_payloads
from consort.training.compute import Compute
from consort.training.local import LocalTraining
from consort.training.objectives import pull_towards

SIZES = (20, 20, 20, 9, 20, 20)
LOCAL = LocalTraining(epochs=2, batch=8, lr=0.1)


class Forgetful(nn.Module):
    """A linear layer with dropout."""

    measure = staticmethod(number_count)

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layer, self.dropout, self.width = nn.Linear(inputs, 6), nn.Dropout(0.5), 6

    def forward(self, inputs: Tensor) -> Tensor:
        return self.dropout(self.layer(inputs).relu())


@pytest.fixture
def unstackable(monkeypatch):
    monkeypatch.setitem(entries("models"), "normed", Registered("tests.helpers:Normed"))
    monkeypatch.setitem(
        entries("models"), "forgetful", Registered("tests.unit.training.test_cohort:Forgetful")
    )


def federation(together, sizes=SIZES, tasks=None, model=MLP):
    members = {
        f"c{number}": tiny_member(f"c{number}", size, tasks or {"classify": 3}, model)
        for number, size in enumerate(sizes)
    }
    return Federation(members, compute=Compute(cohort_step=together))


def outcome(algorithm, clients, folder, workers=1, rounds=2, **schedule):
    folder.mkdir(exist_ok=True)
    return finish(
        Run(clients, algorithm, Schedule(rounds, **schedule), folder=folder, workers=workers)
    )


def both(algorithm, tmp_path, **kind):
    """One client after the other, and all in one step."""
    return [
        outcome(algorithm, federation(together, **kind), tmp_path / str(together))
        for together in (False, True)
    ]


@dataclass(frozen=True)
class Counted(FedAvg):
    """FedAvg that notes in what company its clients train."""

    seen: list = field(default_factory=list)

    @batchable
    @on_client
    def train(self, client, model):
        self.seen.append(client.ids if isinstance(client, Cohort) else client.id)
        return super().train(client, model)


def companies(clients, tmp_path, local=LOCAL):
    algorithm = Counted(local)
    outcome(algorithm, clients, tmp_path, rounds=1)
    return algorithm.seen


# The same numbers


@pytest.mark.parametrize("name", ["fedavg", "fedprox"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "adamw", "lr": 0.01, "weight_decay": 0.1},
        {"schedule": "cosine", "warmup": 1},
    ],
    ids=str,
)
def test_a_cohort_agrees_with_the_loop(name, settings, tmp_path):
    local = LocalTraining(**({"epochs": 2, "batch": 8, "lr": 0.1} | settings))
    algorithm = FedAvg(local) if name == "fedavg" else FedProx(local, mu=0.5)
    loop, cohort = both(algorithm, tmp_path)
    difference = loop.server.model - cohort.server.model
    assert max(float(tensor.abs().max()) for tensor in difference.values()) < 1e-6
    for one, other in zip(loop.rows, cohort.rows, strict=True):
        assert one._replace(value=0) == other._replace(value=0)
        assert other.value == pytest.approx(one.value, abs=1e-5)


def test_two_tasks_with_weights_agree_with_the_loop(tmp_path):
    local = LocalTraining(epochs=2, batch=8, lr=0.1, task_weights={"shape": 0.3})
    loop, cohort = both(FedAvg(local), tmp_path, tasks=TWO_TASKS)
    assert (loop.server.model - cohort.server.model).norm() < 1e-6


def test_a_cohort_is_not_the_loop_in_disguise(tmp_path):
    """Otherwise the agreement above would say nothing."""
    assert companies(federation(True), tmp_path) == [
        ("c0", "c1", "c2"),
        "c3",
        ("c4", "c5"),
    ]


def test_the_answer_of_one_client_does_not_depend_on_its_company():
    def answers(ids):
        host = ClientHost(federation(True), FedAvg(LOCAL), 0, 1, StateStore())
        model = host.federation.roster.shared()
        calls = [Call(client, "train", 1, 0, 0, {"model": model}) for client in ids]
        return {reply.client: reply.content["model"] for reply in host.answer(calls)}

    pair, trio = answers(["c1", "c2"]), answers(["c0", "c1", "c2"])
    for client in ("c1", "c2"):
        assert (pair[client] - trio[client]).norm() < 1e-6


# Where the loop is used all the same


def test_only_neighbours_of_one_size_and_model_are_trained_together(tmp_path):
    assert companies(federation(True, (5, 6, 5, 6)), tmp_path / "a") == [
        "c0",
        "c1",
        "c2",
        "c3",
    ]
    assert companies(federation(False), tmp_path / "b") == [f"c{number}" for number in range(6)]


@pytest.mark.parametrize("limit", [{"clip": 0.5}, {"steps": 3}])
def test_clipping_and_counted_steps_use_the_loop(limit, tmp_path):
    local = LocalTraining(batch=8, lr=0.1, **limit)
    seen = companies(federation(True), tmp_path / "seen", local)
    assert seen == [f"c{number}" for number in range(6)]
    assert_same_outcome(*both(FedAvg(local), tmp_path))


@pytest.mark.parametrize("model", ["normed", "forgetful"])
def test_models_that_do_more_than_their_parameters_say_use_the_loop(model, unstackable, tmp_path):
    clients = federation(True, model={"name": model})
    assert not can_be_stacked(clients.blueprint("c0").model)
    seen = companies(clients, tmp_path / "seen")
    assert seen == [f"c{number}" for number in range(6)]
    assert_same_outcome(*both(FedAvg(LOCAL), tmp_path, model={"name": model}))


def test_methods_that_are_not_marked_use_the_loop(tmp_path):
    assert_same_outcome(*both(Ditto(LOCAL), tmp_path))


def test_large_cohorts_are_cut(monkeypatch, tmp_path):
    monkeypatch.setattr(host_module, "SIZE", 2)
    assert companies(federation(True), tmp_path) == [
        ("c0", "c1"),
        "c2",
        "c3",
        ("c4", "c5"),
    ]


# The same bits on every engine


@pytest.mark.parametrize("algorithm", [FedAvg(LOCAL), FedProx(LOCAL, mu=0.5)], ids=["avg", "prox"])
def test_one_process_and_two_workers_agree_to_the_bit(algorithm, monkeypatch, tmp_path):
    monkeypatch.setattr(host_module, "SIZE", 2)
    alone = outcome(algorithm, federation(True), tmp_path / "1", participation=0.7)
    many = outcome(algorithm, federation(True), tmp_path / "2", workers=2, participation=0.7)
    assert_same_outcome(many, alone)


# What goes wrong


def with_huge_inputs(member: Member) -> Member:
    splits = member.load()
    train = Examples(splits.train.inputs * 1e30, splits.train.targets)
    return Member.of(member.tasks, member.model, Splits(train, splits.validation, splits.test))


def replies_of(clients, local=LOCAL):
    host = ClientHost(clients, FedAvg(local), 0, 1, StateStore())
    model = clients.roster.shared()
    calls = [Call(client, "train", 1, 0, 0, {"model": model}) for client in clients.client_ids]
    return [reply for chunk in host.chunks(calls) for reply in host.answer(chunk)]


def test_a_client_that_diverges_is_named_and_the_others_do_not_suffer():
    clients = federation(True, (20, 20, 20))
    clients.members["c1"] = with_huge_inputs(clients.members["c1"])
    good, bad, also_good = replies_of(clients)
    assert bad.error is not None
    assert str(bad.error).startswith("client c1: the training loss became ")
    assert "local.lr = 0.1" in str(bad.error)
    alone = replies_of(federation(False, (20, 20, 20)))
    assert_same(good.content, alone[0].content)
    assert_same(also_good.content, alone[2].content)


def test_a_payload_that_does_not_fit_is_refused_for_every_client():
    clients = federation(True, (20, 20))
    host = ClientHost(clients, FedAvg(LOCAL), 0, 1, StateStore())
    model = clients.roster.shared() | {"encoder.odd": torch.ones(2)}
    calls = [Call(client, "train", 1, 0, 0, {"model": model}) for client in clients.client_ids]
    replies = host.answer(calls)
    assert [reply.client for reply in replies] == ["c0", "c1"]
    assert all("no parameter 'encoder.odd'" in str(reply.error) for reply in replies)


def test_what_is_private_is_not_sent_by_a_cohort_either():
    @dataclass(frozen=True)
    class Secretive(FedAvg):
        private: ClassVar[tuple[str, ...]] = ("heads",)

    clients = federation(True, (20, 20))
    host = ClientHost(clients, Secretive(LOCAL), 0, 1, StateStore())
    model = clients.roster.shared()
    calls = [Call(client, "train", 1, 0, 0, {"model": model}) for client in clients.client_ids]
    assert host.chunks(calls) == [calls]
    for reply in host.answer(calls):
        assert reply.content == {}
        assert "'heads.classify.weight' is private" in str(reply.error)


# The parts


def test_a_shared_payload_is_repeated_and_different_ones_are_stacked():
    one = Params({"w": torch.tensor([1.0, 2.0])})
    two = Params({"w": torch.tensor([3.0, 4.0])})
    shared = stack_payloads([{"model": one, "mu": 0.5}, {"model": one, "mu": 0.5}])
    assert shared["model"]["w"].tolist() == [[1, 2], [1, 2]]
    assert shared["mu"] == 0.5
    own = stack_payloads([{"model": one}, {"model": two}])
    assert own["model"]["w"].tolist() == [[1, 2], [3, 4]]


def test_an_answer_is_cut_into_one_per_client():
    content = {
        "model": Params({"w": torch.tensor([[1.0], [2.0]]), "b": torch.tensor([3.0, 4.0])}),
        "examples": Each({"a": 5, "b": 6}),
        "note": "same",
    }
    first, second = split_content(content, ["a", "b"])
    assert first["model"]["w"].tolist() == [1.0]
    assert second["model"]["b"].item() == 4.0
    assert (first["examples"], second["examples"]) == (5, 6)
    assert first["note"] == second["note"] == "same"
    assert encode(first)  # every entry can travel


def test_the_batches_of_a_cohort_are_those_of_its_clients():
    splits = [tiny_splits(name, 11).train for name in "ab"]
    cohort = Cohort(
        ids=("a", "b"),
        model=None,
        tasks={},
        train=Examples(
            torch.stack([part.inputs for part in splits]),
            {"classify": torch.stack([part.targets["classify"] for part in splits])},
        ),
        generators=[torch.Generator().manual_seed(seed) for seed in (3, 4)],
        round=1,
        rounds=1,
    )
    assert cohort.examples == {"a": 11, "b": 11}
    stacked = list(cohort.batches(4, 2))
    local = LocalTraining(epochs=2, batch=4)
    for number, (part, seed) in enumerate(zip(splits, (3, 4), strict=True)):
        alone = list(local.batches(part, torch.Generator().manual_seed(seed)))
        assert len(alone) == len(stacked) == 6
        for mine, ours in zip(alone, stacked, strict=True):
            assert_same(ours.inputs[number], mine.inputs)
            assert_same(ours.targets["classify"][number], mine.targets["classify"])


@dataclass(frozen=True)
class Frozen(FedAvg):
    @batchable
    @on_client
    def train(self, client, model):
        model.load_into(client.model)
        self.local.run(client, only=("encoder",))
        return {"model": Params.of(client.model), "examples": client.examples}


@dataclass(frozen=True)
class OwnStrength(FedAvg):
    def round(self, server, clients):
        strength = Each({client: float(n) for n, client in enumerate(clients.ids)})
        replies = clients.ask(self.train, model=server.model, strength=strength)
        return type(server)(replies.mean("model", weight="examples"))

    @batchable
    @on_client
    def train(self, client, model, strength):
        model.load_into(client.model)
        self.local.run(client, adjust=pull_towards(model, strength))
        return {"model": Params.of(client.model), "examples": client.examples}


@pytest.mark.parametrize("algorithm", [Frozen(LOCAL), OwnStrength(LOCAL)])
def test_what_a_cohort_cannot_do_is_done_by_the_loop(algorithm, tmp_path):
    loop, cohort = (
        outcome(algorithm, federation(together), tmp_path / str(together))
        for together in (False, True)
    )
    assert (loop.server.model - cohort.server.model).norm() < 1e-6
