"""Training steps for several tasks with a common encoder, with weights that balance the tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from consort.aggregation.min_norm import gram, min_norm_weights
from consort.core.params import Params, has_role
from consort.data.examples import Examples
from consort.tasks import Task
from consort.training.client import Client
from consort.training.objectives import gradients_of_sum

Weighting = Literal["exact", "features", "level", "equal", "sum"]
"""How the gradients of tasks are weighted: see `TaskSteps`."""
TaskLoss = Callable[[Task, Tensor, Tensor], Tensor]
"""Computes the loss of a task from outputs and targets."""


def own_loss(task: Task, output: Tensor, target: Tensor) -> Tensor:
    """The loss that `task` itself defines, for `output` and `target`."""
    return task.loss(output, target)


class TaskSteps:
    """Training steps along a weighted sum of the tasks' gradients.

    `losses` and `gradients` are the arguments `objective` and `gradients` of `LocalTraining.run`.
    A task without gradient, such as one whose labels are missing in a batch, has weight 0.

    Args:
        weighting: The weights of the tasks. `exact` minimises the norm of the encoder's gradient
            (one backward pass per task), `features` that of the gradient with respect to the
            features (one backward pass per task through the heads, one through the encoder).
            `level` scales the tasks' gradients with respect to the features to their mean norm,
            and leaves the gradients of the heads unchanged. `equal` weights all tasks by one
            divided by their number, `sum` by 1.
        loss: Computes the loss of a task; by default the task's own.
    """

    def __init__(self, weighting: Weighting = "exact", loss: TaskLoss = own_loss) -> None:
        self.weighting = weighting
        self.loss = loss
        self.weights: list[dict[str, float]] = []
        """The weights of the tasks in every step."""
        self._features = torch.zeros(0)

    def losses(self, client: Client, batch: Examples) -> dict[str, Tensor]:
        """The loss of each task, from features that are computed once.

        Args:
            client: The client.
            batch: A batch of its examples.

        Returns:
            The losses by task.
        """
        self._features = client.model.encoder(batch.inputs)
        return {
            name: self.loss(task, client.model.output(name, self._features), batch.targets[name])
            for name, task in client.tasks.items()
        }

    def gradients(
        self, losses: dict[str, Tensor], names: Sequence[str], params: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The weighted sum of the gradients of all tasks.

        Args:
            losses: The losses by task, as `losses` returned them last.
            names: The names of the parameters.
            params: The parameters.

        Returns:
            One gradient per parameter.
        """
        if self.weighting == "exact":
            return self._exact(losses, names, params)
        if self.weighting in ("features", "level"):
            return self._through_features(losses, names, params)
        weights = dict.fromkeys(losses, 1.0 if self.weighting == "sum" else 1.0 / len(losses))
        self.weights.append(weights)
        weighted = {name: loss * weights[name] for name, loss in losses.items()}
        return gradients_of_sum(weighted, names, params)

    def _exact(
        self, losses: dict[str, Tensor], names: Sequence[str], params: Sequence[Tensor]
    ) -> list[Tensor]:
        found = {name: _gradients(loss, params) for name, loss in losses.items()}
        shared = _places(names, "encoder")
        weights = self._weigh({name: [grads[i] for i in shared] for name, grads in found.items()})
        self.weights.append(weights)
        return _combined(found, weights)

    def _through_features(
        self, losses: dict[str, Tensor], names: Sequence[str], params: Sequence[Tensor]
    ) -> list[Tensor]:
        pulls, after = {}, {}
        for task, loss in losses.items():
            own = _places(names, f"heads.{task}", f"decoders.{task}")
            pull, *others = _gradients(loss, [self._features, *(params[place] for place in own)])
            pulls[task], after[task] = [pull], dict(zip(own, others, strict=True))
        levelled = self.weighting == "level"
        weights = _level(pulls) if levelled else self._weigh(pulls)
        self.weights.append(weights)
        encoder = _places(names, "encoder")
        through = torch.autograd.grad(
            self._features, [params[place] for place in encoder], _combined(pulls, weights)
        )
        total = dict(zip(encoder, through, strict=True))
        for task, found in after.items():
            factor = 1.0 if levelled else weights[task]
            total |= {place: grad * factor for place, grad in found.items()}
        return [total[place] for place in range(len(names))]

    def _weigh(self, gradients: dict[str, list[Tensor]]) -> dict[str, float]:
        products = gram(
            [Params(dict(zip(map(str, range(len(g))), g, strict=True))) for g in gradients.values()]
        )
        moving = products.diagonal() > 0
        if not moving.any():
            return dict.fromkeys(gradients, 1.0 / len(gradients))
        weights = torch.zeros(len(gradients), dtype=torch.float64)
        weights[moving] = min_norm_weights(products[moving][:, moving])
        return dict(zip(gradients, weights.tolist(), strict=True))

    def mean_weights(self) -> dict[str, float]:
        """The mean weight of every task over all steps so far."""
        steps = max(len(self.weights), 1)
        tasks = self.weights[0] if self.weights else {}
        return {task: sum(step[task] for step in self.weights) / steps for task in tasks}


def _places(names: Sequence[str], *roles: str) -> list[int]:
    """The positions of the parameters with one of these roles."""
    return [i for i, name in enumerate(names) if any(has_role(name, role) for role in roles)]


def _level(pulls: dict[str, list[Tensor]]) -> dict[str, float]:
    """Weights that scale all gradients that are not zero to their mean norm."""
    lengths = {name: pull.norm().item() for name, (pull,) in pulls.items()}
    moving = [length for length in lengths.values() if length]
    mean = math.fsum(moving) / max(len(moving), 1)
    return {name: mean / length if length else 0.0 for name, length in lengths.items()}


def _combined(found: dict[str, list[Tensor]], weights: dict[str, float]) -> list[Tensor]:
    """The weighted sum of the tasks' gradients."""
    total = [torch.zeros_like(grad) for grad in next(iter(found.values()))]
    for name, grads in found.items():
        torch._foreach_add_(total, grads, alpha=weights[name])
    return total


def _gradients(loss: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, list(inputs), retain_graph=True, allow_unused=True)
    pairs = zip(found, inputs, strict=True)
    return [torch.zeros_like(value) if grad is None else grad for grad, value in pairs]
