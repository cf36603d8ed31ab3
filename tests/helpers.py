"""Small federations and exact comparisons that many tests share."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from consort.core.randomness import generator_for
from consort.data.examples import Examples, Splits
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.inputs import number_count
from consort.models.multitask import BatchNormPolicy, MultiTaskModel
from consort.models.registry import ModelSpec
from consort.tasks import Classification
from consort.training.compute import Compute

INPUTS = 8
ONE_TASK = {"classify": 3}
TWO_TASKS = {"colour": 3, "shape": 4}
MLP = {"name": "mlp", "hidden": [16]}


class Normed(nn.Module):
    """A linear layer and BatchNorm."""

    measure = staticmethod(number_count)

    def __init__(self, inputs: int, features: PositiveInt = 6) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, features)
        self.norm = nn.BatchNorm1d(features)
        self.width = features

    def forward(self, inputs: Tensor) -> Tensor:
        """The features of a batch."""
        features: Tensor = self.norm(self.layer(inputs.flatten(1))).relu()
        return features


def normed_model(batchnorm: BatchNormPolicy = "average", inputs: int = INPUTS) -> MultiTaskModel:
    """A model with BatchNorm and one head, whose statistics are not those it was made with."""
    encoder = Normed(inputs)
    model = MultiTaskModel(encoder, {"classify": nn.Linear(encoder.width, 3)}, batchnorm=batchnorm)
    model.train()
    model(torch.randn(12, inputs) * 3 + 1)
    return model


def linear_examples(name: str, count: int, tasks: Mapping[str, int] = ONE_TASK) -> Examples:
    """Random vectors, and for each task the class that one linear map for all clients gives."""
    inputs = torch.randn(count, INPUTS, generator=generator_for(0, "inputs", name))
    targets = {}
    for task, classes in tasks.items():
        truth = torch.randn(INPUTS, classes, generator=generator_for(0, "truth", task))
        targets[task] = (inputs @ truth).argmax(1)
    return Examples(inputs, targets)


def tiny_splits(name: str, train: int = 30, tasks: Mapping[str, int] = ONE_TASK) -> Splits:
    """A client's own examples: so many to train on, ten to choose by and ten to test on."""
    sizes = {"train": train, "validation": 10, "test": 10}
    return Splits(*(linear_examples(f"{name} {s}", n, tasks) for s, n in sizes.items()))


def tiny_member(
    name: str,
    train: int = 30,
    tasks: Mapping[str, int] = ONE_TASK,
    model: Mapping[str, Any] = MLP,
) -> Member:
    """A client with a small model; `tasks` gives the number of classes of each task."""
    return Member.of(
        {task: Classification(classes) for task, classes in tasks.items()},
        ModelSpec.of(model),
        tiny_splits(name, train, tasks),
    )


def server_examples(count: int = 24) -> Examples:
    """Inputs like those of the clients, without targets, for servers that train."""
    return Examples(linear_examples("server", count).inputs, {})


def tiny_federation(
    clients: int = 4,
    tasks: Mapping[str, int] = ONE_TASK,
    model: Mapping[str, Any] = MLP,
    seed: int = 0,
    batchnorm: BatchNormPolicy = "average",
    compute: Compute = Compute(),
) -> Federation:
    """Clients c0, c1, … with 30, 31, … examples.

    Try `tasks=TWO_TASKS`, or `model={"name": "normed"}` together with the fixture
    `normed_encoder`.
    """
    names = [f"c{number}" for number in range(clients)]
    members = {
        name: tiny_member(name, 30 + number, tasks, model) for number, name in enumerate(names)
    }
    return Federation(members, seed, batchnorm, compute, server_data=server_examples())


def unlike_federation(*members: Mapping[str, Any], clients: int = 4) -> Federation:
    """Clients c0, c1, … that take turns in having these arguments of `tiny_member`."""
    names = [f"c{number}" for number in range(clients)]
    return Federation(
        {
            name: tiny_member(name, 30 + number, **members[number % len(members)])
            for number, name in enumerate(names)
        },
        server_data=server_examples(),
    )


def two_task_federation(clients: int = 4) -> Federation:
    """Even clients learn `colour` alone, odd ones `colour` and `shape`."""
    return unlike_federation({"tasks": {"colour": 3}}, {"tasks": TWO_TASKS}, clients=clients)


def unlike_labels_federation(clients: int = 4) -> Federation:
    """Even clients have three classes, odd ones four; their encoders are alike."""
    return unlike_federation({"tasks": ONE_TASK}, {"tasks": {"classify": 4}}, clients=clients)


def unlike_models_federation(clients: int = 4) -> Federation:
    """Even clients have 16 hidden units, odd ones 24."""
    return unlike_federation(
        {"model": MLP}, {"model": {"name": "mlp", "hidden": [24]}}, clients=clients
    )


def assert_same(found: Any, expected: Any) -> None:
    """Types and every bit agree, all the way down; NaN equals NaN."""
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, Tensor):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert raw_bytes(found) == raw_bytes(expected)
    elif isinstance(expected, float):
        assert struct.pack("d", found) == struct.pack("d", expected)
    elif isinstance(expected, Mapping):
        assert list(found) == list(expected)
        assert [type(key) for key in found] == [type(key) for key in expected]
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif dataclasses.is_dataclass(expected):
        assert_same(vars(found), vars(expected))
    else:
        assert found == expected


def raw_bytes(tensor: Tensor) -> bytes:
    """The memory of a tensor, laid out plainly."""
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
