"""Prototypes: the mean feature vector of every class, and what servers and clients do with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from consort.core.params import Params
from consort.data.examples import Examples
from consort.errors import Failure, NoReplies
from consort.training.client import Client
from consort.training.optimizers import make_optimizer

Prototypes = dict[str, dict[int, Tensor]]
"""For every task, the mean feature of each of its classes."""


def prototypes_of(client: Client, seen: Examples) -> Prototypes:
    """The prototypes of a client's tasks.

    Args:
        client: The client.
        seen: Its training examples, with features in the place of inputs.

    Returns:
        The mean feature of every class, by task.

    Raises:
        Failure: If a task has targets that are not classes.
    """
    for task in client.tasks:
        if seen.targets[task].ndim != 1 or seen.targets[task].is_floating_point():
            raise Failure(
                f"examples have no classes in task {task!r}, so there are no prototypes: choose "
                "an algorithm such as lg_fedavg"
            )
    return {task: class_means(seen.tensor, seen.targets[task]) for task in client.tasks}


def class_means(features: Tensor, labels: Tensor) -> dict[int, Tensor]:
    """The mean feature of every class.

    Args:
        features: One row of features per example.
        labels: The class of each example; a negative label stands for no class.

    Returns:
        The means by class.
    """
    found = sorted(set(labels.tolist()))
    return {label: features[labels == label].mean(0) for label in found if label >= 0}


def as_examples(sent: Iterable[Prototypes]) -> dict[str, Examples]:
    """The prototypes that clients `sent` as examples of their classes, by task."""
    pairs: dict[str, list[tuple[int, Tensor]]] = {}
    for prototypes in sent:
        for task, means in prototypes.items():
            pairs.setdefault(task, []).extend(means.items())
    return {task: _examples(task, found) for task, found in pairs.items() if found}


def _examples(task: str, pairs: Sequence[tuple[int, Tensor]]) -> Examples:
    """Prototypes as examples; those of another length than most are left out."""
    shape = most_common(feature.shape for _, feature in pairs)
    alike = [(label, feature) for label, feature in pairs if feature.shape == shape]
    labels = torch.tensor([label for label, _ in alike])
    return Examples(torch.stack([feature for _, feature in alike]), {task: labels})


def most_common(shapes: Iterable[torch.Size]) -> torch.Size | None:
    """The shape that occurs most often among `shapes`; None if there is none."""
    return max((counts := Counter(shapes)), key=counts.__getitem__, default=None)


def pull(found: Examples, prototypes: Prototypes, strength: float) -> dict[str, Tensor]:
    """Loss terms that draw features to the prototypes of their classes.

    A feature whose class has no prototype contributes nothing: its target is the feature itself.

    Args:
        found: Examples with features in the place of inputs.
        prototypes: The prototypes, by task.
        strength: The weight of the terms.

    Returns:
        By task: `strength` times the mean squared distance of features to their prototypes.
    """
    terms = {}
    own = found.tensor.detach()
    for task, known in prototypes.items():
        labels = found.targets[task].tolist()
        goals = [known.get(label, feature) for label, feature in zip(labels, own, strict=True)]
        terms[f"{task} prototypes"] = strength * F.mse_loss(found.tensor, torch.stack(goals))
    return terms


def fitted(
    params: Params,
    loss: Callable[[Params, Examples], Tensor],
    batches: Iterable[Examples],
    lr: float,
) -> Params:
    """Trains parameters on the server, with one step of SGD on every batch.

    Args:
        params: The initial parameters.
        loss: The loss of parameters on a batch.
        batches: The batches, in order.
        lr: The learning rate, `server_lr` of the algorithms.

    Returns:
        The trained parameters.

    Raises:
        NoReplies: If the loss is not finite, be it by the learning rate or by what a client sent.
    """
    optimizer = make_optimizer("sgd")
    moving = Params({name: tensor.clone().requires_grad_() for name, tensor in params.items()})
    leaves = list(moving.values())
    values = [leaf.detach() for leaf in leaves]
    for batch in batches:
        found = loss(moving, batch)
        if not found.isfinite():
            raise NoReplies(f"the server's loss became {found.item()}: lower server_lr = {lr}")
        optimizer.step(values, list(torch.autograd.grad(found, leaves)), lr)
    return Params(dict(zip(moving, values, strict=True)))
