"""Learning written out in plain PyTorch, to hold the algorithms against."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tests.contract.helpers import Outcome, finish
from tests.helpers import tiny_member
from torch import Tensor, nn
from torch.nn import functional as F

from consort.core.algorithm import Algorithm
from consort.data.examples import Examples, Splits
from consort.federation.federation import Federation
from consort.federation.member import Member
from consort.models.registry import ModelSpec
from consort.run.run import Run
from consort.run.schedule import Schedule

Weights = dict[str, Tensor]

W, B = "encoder.layers.0.weight", "encoder.layers.0.bias"
V, C = "heads.classify.weight", "heads.classify.bias"
ENCODER, HEAD = (W, B), (V, C)
SIZES = (12, 20, 28)
"""Training examples of the clients; a batch of 32 takes all of them in one step."""


def three_clients(seed: int = 0) -> Federation:
    """Clients c0, c1 and c2 with 12, 20 and 28 examples and one hidden layer of four units."""
    model = {"name": "mlp", "hidden": [4]}
    members = {
        f"c{number}": tiny_member(f"c{number}", size, model=model)
        for number, size in enumerate(SIZES)
    }
    return Federation(members, seed)


def play(
    algorithm: Algorithm[Any], federation: Federation, folder: Any, rounds: int = 1, **schedule: Any
) -> Outcome:
    """What a run of an algorithm leaves behind."""
    folder.mkdir(exist_ok=True)
    return finish(Run(federation, algorithm, Schedule(rounds, **schedule), folder=folder))


def initial(federation: Federation, client: str = "c0") -> Weights:
    """The weights a client starts with."""
    return {name: tensor.clone() for name, tensor in federation.roster.model(client).items()}


def loss(weights: Weights, examples: Examples) -> Tensor:
    """Cross entropy of a network with one hidden layer."""
    hidden = F.relu(examples.inputs @ weights[W].T + weights[B])
    return F.cross_entropy(hidden @ weights[V].T + weights[C], examples.targets["classify"])


def gradient(weights: Weights, examples: Examples) -> Weights:
    """The gradient of the loss on all examples."""
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    loss(leaves, examples).backward()
    return {name: leaf.grad for name, leaf in leaves.items()}


def nothing(name: str, value: Tensor) -> float:
    return 0.0


def descend(
    weights: Weights,
    examples: Examples,
    lr: float,
    steps: int,
    moving: Sequence[str] = (W, B, V, C),
    extra: Callable[[str, Tensor], Tensor | float] = nothing,
) -> Weights:
    """Steps of `w -= lr * (gradient + extra)` for the names that move."""
    weights = dict(weights)
    for _ in range(steps):
        slope = gradient(weights, examples)
        for name in moving:
            weights[name] = weights[name] - lr * (slope[name] + extra(name, weights[name]))
    return weights


def average(models: Sequence[Weights], weights: Sequence[float]) -> Weights:
    """The weighted mean."""
    total = sum(weights)
    return {
        name: sum(m[name] * (w / total) for m, w in zip(models, weights, strict=True))
        for name in models[0]
    }


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference between two numbers of the same place."""
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def assert_close(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    """Equal up to the order of summation."""
    assert distance(one, other) < 2e-6


def scores(outcome: Outcome, model: str, round_: int) -> dict[str, float]:
    """The loss on test data that a run noted for every client."""
    return {
        row.client: row.value
        for row in outcome.rows
        if (row.metric, row.split, row.model, row.round) == ("loss", "test", model, round_)
    }


def assert_scores(found: Mapping[str, float], federation: Federation, models: Any) -> None:
    """The losses noted are those of these models, by client."""
    assert found.keys() == models.keys()
    for client, model in models.items():
        expected = float(loss(model, federation.data(client).test))
        assert abs(found[client] - expected) < 1e-5


@dataclass(frozen=True)
class LeastSquares:
    """Half the mean squared error: with a linear model, a quadratic."""

    metric: str = "loss"
    higher_is_better: bool = False

    def head(self, features: int) -> nn.Module:
        return nn.Linear(features, 1, bias=False)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return 0.5 * (output[:, 0] - target).square().mean()

    def meter(self) -> LeastSquaresMeter:
        return LeastSquaresMeter()


class LeastSquaresMeter:
    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def update(self, output: Tensor, target: Tensor) -> None:
        self.total += 0.5 * float((output[:, 0] - target).square().sum())
        self.count += len(target)

    def compute(self) -> dict[str, float]:
        return {"loss": self.total / self.count}


def quadratic_member(seed: int, size: int) -> Member:
    """A client with a truth of its own in three dimensions."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(size, 3, generator=generator)
    truth = torch.randn(3, generator=generator)
    noise = torch.randn(size, generator=generator)
    examples = Examples(inputs, {"fit": inputs @ truth + 0.1 * noise})
    linear = ModelSpec.of({"name": "mlp", "hidden": []})
    return Member.of({"fit": LeastSquares()}, linear, Splits(examples, examples, examples))


@dataclass
class Quadratic:
    """½ (w - best)ᵀ H (w - best) + constant, in double precision."""

    hessian: Tensor
    best: Tensor

    @classmethod
    def of(cls, member: Member) -> Quadratic:
        train = member.load().train
        inputs, target = train.inputs.double(), train.targets["fit"].double()
        hessian = inputs.T @ inputs / len(inputs)
        return cls(hessian, torch.linalg.solve(hessian, inputs.T @ target / len(inputs)))

    def shrinkage(self, lr: float, steps: int) -> Tensor:
        """What so many steps of plain gradient descent make of the distance to the best point."""
        return torch.linalg.matrix_power(torch.eye(3).double() - lr * self.hessian, steps)

    def after(self, start: Tensor, lr: float, steps: int) -> Tensor:
        """Where plain gradient descent is after so many steps."""
        return self.best + self.shrinkage(lr, steps) @ (start - self.best)

    def pulled(self, anchor: Tensor, strength: float) -> Quadratic:
        """This, and ½ strength ||w - anchor||² added to it."""
        hessian = self.hessian + strength * torch.eye(3).double()
        best = torch.linalg.solve(hessian, self.hessian @ self.best + strength * anchor)
        return Quadratic(hessian, best)
