"""Steps for several tasks on one encoder, weighted so that none of them pays for another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from consort.aggregation.min_norm import gram, min_norm_weights
from consort.client import Client
from consort.data.examples import Examples
from consort.local import gradients_of_sum
from consort.params import Params, has_role

Weighting = Literal["exact", "features", "equal"]


class TaskSteps:
    """The hooks of `LocalTraining.run` for steps along the shortest combination of gradients.

    The weights minimise the length of the encoder's gradient (`exact`: one backward pass per
    task), or of the features' (`features`: one backward pass through the heads per task and one
    through the encoder), or are all the same (`equal`). A task without any gradient, such as
    one whose labels are missing in a batch, has no say.
    """

    def __init__(self, weighting: Weighting = "exact") -> None:
        self.weighting = weighting
        self.weights: list[dict[str, float]] = []
        """What every task weighed in every step."""
        self._features = torch.zeros(0)

    def losses(self, client: Client, batch: Examples) -> dict[str, Tensor]:
        """The loss of each task, from features that are computed once."""
        self._features = client.model.encoder(batch.inputs)
        return {
            name: task.loss(client.model.output(name, self._features), batch.targets[name])
            for name, task in client.tasks.items()
        }

    def gradients(
        self, losses: dict[str, Tensor], names: Sequence[str], params: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """The weighted sum of the gradients of all tasks."""
        if self.weighting == "exact":
            return self._exact(losses, names, params)
        weights = dict.fromkeys(losses, 1.0 / len(losses))
        if self.weighting == "features":
            weights = self._weigh(
                {name: [_gradients(loss, [self._features])[0]] for name, loss in losses.items()}
            )
        self.weights.append(weights)
        weighted = {name: loss * weights[name] for name, loss in losses.items()}
        return gradients_of_sum(weighted, names, params)

    def _exact(
        self, losses: dict[str, Tensor], names: Sequence[str], params: Sequence[Tensor]
    ) -> list[Tensor]:
        found = {name: _gradients(loss, params) for name, loss in losses.items()}
        shared = [place for place, name in enumerate(names) if has_role(name, "encoder")]
        weights = self._weigh({name: [grads[i] for i in shared] for name, grads in found.items()})
        self.weights.append(weights)
        total = [torch.zeros_like(param) for param in params]
        for name, grads in found.items():
            torch._foreach_add_(total, grads, alpha=weights[name])
        return total

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
        """What every task weighed on average."""
        steps = max(len(self.weights), 1)
        tasks = self.weights[0] if self.weights else {}
        return {task: sum(step[task] for step in self.weights) / steps for task in tasks}


def _gradients(loss: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    found = torch.autograd.grad(loss, list(inputs), retain_graph=True, allow_unused=True)
    pairs = zip(found, inputs, strict=True)
    return [torch.zeros_like(value) if grad is None else grad for grad, value in pairs]
