"""What a step of local training goes by: losses, their gradients, and changes to these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd.variable import Variable

from consort.core.params import Params
from consort.data.examples import Examples
from consort.training.client import Client
from consort.training.scoring import BATCH, recompute_statistics

Objective = Callable[[Client, Examples], dict[str, Tensor]]
"""Turns a batch into named losses, one per task and one per added term."""
Gradients = Callable[[dict[str, Tensor], Sequence[str], Sequence[Tensor]], Sequence[Tensor]]
"""Turns the losses into one gradient per parameter: (losses, names, parameters)."""
Adjust = Callable[[Sequence[str], Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""Changes the gradients before the step: (names, values of the parameters, gradients)."""
Found = tuple[Sequence[Tensor], Sequence[Tensor]]
"""The losses of a batch and the gradients of the parameters."""
Step = Callable[[Examples], Found]
"""Turns a batch into its losses and gradients."""

_ONE = torch.ones(())  # the gradient of a loss with respect to itself
_run_backward = Variable._execution_engine.run_backward


def task_losses(client: Client, batch: Examples) -> dict[str, Tensor]:
    """The loss of each of the client's tasks: the ordinary objective."""
    model = client.model
    features = model.encoder(batch.inputs)
    return {
        name: task.loss(model.output(name, features), batch.targets[name])
        for name, task in client.tasks.items()
    }


def losses_of_features(client: Client, batch: Examples) -> dict[str, Tensor]:
    """The same for a batch of features in the place of inputs: see `features_of`."""
    return {
        name: task.loss(client.model.output(name, batch.inputs), batch.targets[name])
        for name, task in client.tasks.items()
    }


@torch.no_grad()
def features_of(client: Client) -> Examples:
    """The client's training examples as its encoder sees them, in testing mode."""
    train = client.data.train
    if client.model.batchnorm == "recompute":
        recompute_statistics(client.model, train)
    client.model.eval()
    parts = [client.model.encoder(batch.inputs) for batch in train.batches(BATCH)]
    return Examples(torch.cat(parts), train.targets)


def gradients_of_sum(
    losses: dict[str, Tensor], _: Sequence[str], params: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The gradient of the sum of all losses: the ordinary one."""
    roots = tuple(loss for loss in losses.values() if loss.requires_grad)
    ones = (_ONE,) * len(roots)
    # What torch.autograd.grad calls after checks that take as long as a tiny model's backward pass.
    grads = _run_backward(roots, ones, False, False, tuple(params), True, accumulate_grad=False)
    if any(grad is None for grad in grads):
        pairs = zip(grads, params, strict=True)
        return [torch.zeros_like(param) if grad is None else grad for grad, param in pairs]
    return grads


def pull_towards(anchor: Params, strength: float) -> Adjust:
    """Adds the gradient of `strength / 2 * ||w - anchor||²` for the parameters in `anchor`."""

    def adjust(
        names: Sequence[str], params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        return [
            grad.add(param - anchor[name], alpha=strength) if name in anchor else grad
            for name, param, grad in zip(names, params, grads, strict=True)
        ]

    return adjust


def shift_by(direction: Params) -> Adjust:
    """Adds a fixed vector to every gradient."""

    def adjust(names: Sequence[str], _: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor]:
        return [
            grad + direction[name] if name in direction else grad
            for name, grad in zip(names, grads, strict=True)
        ]

    return adjust
