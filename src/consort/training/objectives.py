"""The parts of a training step: losses, their gradients, and changes to the gradients."""

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
"""Computes named losses of a batch: one per task, and one per additional term."""
Gradients = Callable[[dict[str, Tensor], Sequence[str], Sequence[Tensor]], Sequence[Tensor]]
"""Computes one gradient per parameter: (losses, names, parameters)."""
Adjust = Callable[[Sequence[str], Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""Changes the gradients before a step: (names, values of the parameters, gradients)."""
Found = tuple[Sequence[Tensor], Sequence[Tensor]]
"""The losses of a batch and the gradients of the parameters."""
Step = Callable[[Examples], Found]
"""Computes the losses and gradients of a batch."""

_ONE = torch.ones(())  # the gradient of a loss with respect to itself
_run_backward = Variable._execution_engine.run_backward


def task_losses(client: Client, batch: Examples) -> dict[str, Tensor]:
    """The loss of each of the client's tasks: the default objective.

    Args:
        client: The client.
        batch: A batch of its examples.

    Returns:
        The losses by task.

    Examples:
        >>> import torch
        >>> from torch import Generator
        >>> from consort import Classification, Client, Examples, MultiTaskModel, Splits
        >>> from consort import task_losses
        >>> examples = Examples(torch.eye(4), {"place": torch.arange(4)})
        >>> splits = Splits(examples, examples, examples)
        >>> model = MultiTaskModel(torch.nn.Identity(), {"place": torch.nn.Linear(4, 4)})
        >>> tasks = {"place": Classification(4)}
        >>> client = Client("bank-1", model, tasks, splits, {}, Generator(), round=1, rounds=10)
        >>> list(task_losses(client, examples))
        ['place']
    """
    model = client.model
    features = model.encoder(batch.inputs)
    return {
        name: task.loss(model.output(name, features), batch.targets[name])
        for name, task in client.tasks.items()
    }


def losses_of_features(client: Client, batch: Examples) -> dict[str, Tensor]:
    """The loss of each of the client's tasks, computed from features.

    Args:
        client: The client.
        batch: A batch with features in the place of inputs: see `features_of`.

    Returns:
        The losses by task.
    """
    return {
        name: task.loss(client.model.output(name, batch.tensor), batch.targets[name])
        for name, task in client.tasks.items()
    }


@torch.no_grad()
def features_of(client: Client) -> Examples:
    """The training examples of `client`, with the features of its encoder as inputs."""
    train = client.data.train
    if client.model.batchnorm == "recompute":
        recompute_statistics(client.model, train)
    client.model.eval()
    parts = [client.model.encoder(batch.inputs) for batch in train.batches(BATCH)]
    return Examples(torch.cat(parts), train.targets)


def gradients_of_sum(
    losses: dict[str, Tensor], _: Sequence[str], params: Sequence[Tensor]
) -> Sequence[Tensor]:
    """The gradient of the sum of all losses: the default.

    Args:
        losses: The losses, by name.
        _: The names of the parameters.
        params: The parameters.

    Returns:
        One gradient per parameter; zero for a parameter that no loss depends on.
    """
    roots = tuple(loss for loss in losses.values() if loss.requires_grad)
    ones = (_ONE,) * len(roots)
    # torch.autograd.grad calls this after checks that take as long as a tiny model's backward pass.
    grads = _run_backward(roots, ones, False, False, tuple(params), True, accumulate_grad=False)
    if any(grad is None for grad in grads):
        pairs = zip(grads, params, strict=True)
        return [torch.zeros_like(param) if grad is None else grad for grad, param in pairs]
    return grads


def pull_towards(anchor: Params, strength: float) -> Adjust:
    """Adds the gradient of `strength / 2 * ||w - anchor||²`, a proximal term.

    Args:
        anchor: The parameters to stay near to; those that it lacks are not affected.
        strength: The weight of the term.

    Returns:
        A function for `LocalTraining.run(adjust=...)`.

    Examples:
        >>> import torch
        >>> from consort import Params, pull_towards
        >>> adjust = pull_towards(Params({"w": torch.tensor([1.0])}), strength=0.5)
        >>> adjust(["w"], [torch.tensor([3.0])], [torch.tensor([10.0])])
        [tensor([11.])]
    """

    def adjust(
        names: Sequence[str], params: Sequence[Tensor], grads: Sequence[Tensor]
    ) -> list[Tensor]:
        return [
            grad.add(param - anchor[name], alpha=strength) if name in anchor else grad
            for name, param, grad in zip(names, params, grads, strict=True)
        ]

    return adjust


def shift_by(direction: Params) -> Adjust:
    """Adds the same vector to every gradient.

    Args:
        direction: What is added, by name of the parameter.

    Returns:
        A function for `LocalTraining.run(adjust=...)`.

    Examples:
        >>> import torch
        >>> from consort import Params, shift_by
        >>> adjust = shift_by(Params({"w": torch.tensor([1.0])}))
        >>> adjust(["w"], [torch.tensor([3.0])], [torch.tensor([10.0])])
        [tensor([11.])]
    """

    def adjust(names: Sequence[str], _: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor]:
        return [
            grad + direction[name] if name in direction else grad
            for name, grad in zip(names, grads, strict=True)
        ]

    return adjust
