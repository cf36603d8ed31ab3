"""A replayed step gives the bits of autograd, and what cannot be replayed is left alone."""

from __future__ import annotations

import pytest
import torch
from tests.helpers import TWO_TASKS, assert_same, normed_model
from torch import Generator, nn

from consort.core.params import Params
from consort.data.examples import Examples, Splits
from consort.models.mlp import Mlp
from consort.models.multitask import MultiTaskModel
from consort.models.registry import ModelSpec, build
from consort.tasks import Classification
from consort.training import replay
from consort.training.client import Client
from consort.training.local import LocalTraining
from consort.training.objectives import gradients_of_sum, pull_towards, task_losses

ONE = {"classify": Classification(3)}
TWO = {task: Classification(classes) for task, classes in TWO_TASKS.items()}
TEXTS = {"name": "textcnn", "vocabulary": 20, "embedding": 6, "filters": 4, "kernels": [2, 3]}
STEADY = {
    "softmax regression": ({"name": "mlp", "hidden": []}, torch.randn(30, 8)),
    "mlp": ({"name": "mlp", "hidden": [7, 5]}, torch.randn(30, 8)),
    "cnn4": ({"name": "cnn4", "scale": 0.1}, torch.randn(30, 1, 16, 16)),
    "textcnn": (TEXTS | {"dropout": 0.0}, torch.randint(0, 20, (30, 6))),
}


def client_of(model, inputs, tasks=ONE):
    draw = Generator().manual_seed(1)
    targets = {
        name: torch.randint(0, task.classes, (len(inputs),), generator=draw)
        for name, task in tasks.items()
    }
    data = Splits(*[Examples(inputs, targets)] * 3)
    return Client("c", model, tasks, data, {}, Generator().manual_seed(2), 1, 1)


def built(table, inputs, tasks=ONE):
    model = build(ModelSpec.of(table), tasks, inputs[0], seed=0)
    return model.to(memory_format=torch.channels_last) if inputs.ndim == 4 else model


def programs(model):
    """How many steps of a model are replayed by now."""
    known = replay._memories.get(model)
    return sum(map(len, known.programs.values())) if known else 0


@pytest.fixture
def compared(monkeypatch):
    """Trains a client that records its second step, and its twin that never records."""

    def compare(make, local=LocalTraining(epochs=6, batch=8, lr=0.1), **options):
        found = []
        for patience in (2, 0):
            monkeypatch.setattr(replay, "_PATIENCE", patience)
            client = make()
            torch.manual_seed(3)
            trained = local.run(client, **options)
            found.append((client.model, trained, Params.of(client.model)))
        (model, trained, params), (plain, expected, weights) = found
        assert programs(plain) == 0
        assert trained == expected
        assert_same(params, weights)
        return programs(model)

    return compare


@pytest.mark.parametrize("name", STEADY)
def test_steps_with_full_and_with_smaller_batches_are_replayed_bit_for_bit(compared, name):
    table, inputs = STEADY[name]
    if inputs.ndim == 4:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    assert compared(lambda: client_of(built(table, inputs), inputs)) == 2


@pytest.mark.parametrize("options", [
    {"optimizer": "adam"},
    {"momentum": 0.9, "weight_decay": 0.1, "clip": 0.1},
    {"task_weights": {"colour": 0.3}},
])  # fmt: skip
def test_several_tasks_and_every_kind_of_update_fit(compared, options):
    table, inputs = STEADY["mlp"]
    local = LocalTraining(epochs=6, batch=10, lr=0.1, **options)
    assert compared(lambda: client_of(built(table, inputs, TWO), inputs, TWO), local) == 1


def test_frozen_parts_and_adjusted_gradients_fit(compared):
    table, inputs = STEADY["mlp"]
    adjust = pull_towards(Params.of(built(table, inputs)), 0.5)
    make = lambda: client_of(built(table, inputs), inputs)  # noqa: E731
    assert compared(make, only=["heads"], adjust=adjust) == 2


def test_what_moves_and_how_losses_weigh_are_told_apart(compared):
    table, inputs = STEADY["mlp"]

    class Changing(LocalTraining):
        def run(self, client, **_):
            runs = [({}, ()), ({"colour": 0.1}, ()), ({}, ["heads"]), ({}, ["encoder"]), ({}, ())]
            for weights, only in runs:
                local = LocalTraining(epochs=3, batch=10, lr=0.1, task_weights=weights)
                trained = local.run(client, only=only)
            return trained

    make = lambda: client_of(built(table, inputs, TWO), inputs, TWO)  # noqa: E731
    assert compared(make, Changing()) == 4


class Moody(Mlp):
    """A user's module, which torch cannot see through."""

    def forward(self, inputs):
        features = super().forward(inputs)
        return features if inputs.sum().tolist() > 0 else features.tanh()


class Rescaled(Classification):
    """A user's task with the same habit."""

    def loss(self, output, target):
        return super().loss(output, target) * (1 + target.float().mean().tolist())


def normed():
    torch.manual_seed(0)
    return client_of(normed_model(), STEADY["mlp"][1])


def moody():
    torch.manual_seed(0)
    encoder = Moody(8, (5,))
    return client_of(MultiTaskModel(encoder, {"classify": nn.Linear(5, 3)}), STEADY["mlp"][1])


def dropping_out():
    return client_of(built(TEXTS, STEADY["textcnn"][1]), STEADY["textcnn"][1])


def rescaled():
    return client_of(built(*STEADY["mlp"]), STEADY["mlp"][1], {"classify": Rescaled(3)})


@pytest.mark.parametrize("make", [normed, moody, dropping_out, rescaled])
def test_statistics_chance_and_strangers_are_left_to_autograd(compared, make):
    assert compared(make) == 0


@pytest.mark.parametrize("options", [
    {"objective": lambda client, batch: task_losses(client, batch)},
    {"gradients": lambda *arguments: gradients_of_sum(*arguments)},
])  # fmt: skip
def test_other_objectives_and_gradients_are_left_to_autograd(compared, options):
    table, inputs = STEADY["mlp"]
    assert compared(lambda: client_of(built(table, inputs), inputs), **options) == 0


def test_a_hook_sees_every_step_even_after_a_recording(monkeypatch):
    monkeypatch.setattr(replay, "_PATIENCE", 2)
    table, inputs = STEADY["mlp"]
    client, local, seen = client_of(built(table, inputs), inputs), LocalTraining(batch=10), []
    local.run(client)
    assert programs(client.model) == 1
    client.model.encoder.layers[0].register_forward_hook(lambda *_: seen.append(1))
    assert local.run(client).steps == len(seen)


@pytest.mark.parametrize("change", [
    lambda inputs: inputs.add_(1),
    lambda inputs: inputs.view(-1).add_(1),
    lambda inputs: torch._foreach_add_([inputs], 1),
    lambda inputs: inputs * inputs.max().item(),
    lambda inputs: inputs[inputs > 0].sum(),
    lambda inputs: inputs + torch.tensor(1.0),
    lambda inputs: inputs + torch.rand(()),
])  # fmt: skip
def test_calls_that_could_differ_the_next_time_are_not_recorded(change):
    inputs, weight = torch.rand(4), torch.rand(4)
    with replay._Recorder([inputs, weight]) as recorder:
        change(inputs)
        loss = (inputs * weight).sum()
    assert recorder.program(([loss], [])) is None


def test_own_values_may_be_changed_in_place():
    inputs, weight = torch.randn(4), torch.randn(4)
    with replay._Recorder([inputs, weight]) as recorder:
        made = (inputs * weight).relu_()
        parts = made.split([1, 3])
        loss = parts[0].sum() + parts[1].prod()
    program = recorder.program(([loss], [made]))
    others = torch.ones(4), torch.tensor([2.0, 3.0, -1.0, 4.0])
    (again,), (value,) = program(*others)
    assert again == 2
    assert value.tolist() == [2, 3, 0, 4]


def test_what_no_later_line_names_is_let_go():
    lines = ["made1 = f(given0)", "made2, made10,  = g(made1)", "made4 = f(made10)"]
    assert replay._freeing(lines, "return [made10]") == [
        "made1 = f(given0)",
        "made2, made10,  = g(made1); del made1, made2",
        "made4 = f(made10); del made4",
    ]
