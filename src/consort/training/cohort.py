"""Many clients with tiny models, trained in one batched step.

A cohort takes the place of a client in methods marked `@batchable`: all its tensors have a leading
dimension that runs over the clients. Results agree with those of one client after the other to
about 1e-6, but not bit for bit, so a recipe has to ask for it (`compute.cohort_step`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from consort.core.messages import Each, Payload
from consort.core.params import Params
from consort.data.examples import Examples
from consort.errors import Failure
from consort.models.multitask import MultiTaskModel
from consort.tasks import Task

SIZE = 128  # clients per step: the same on every engine, so that results are the same


class StackedModel:
    """The parameters of one model per client, stacked in one tensor per name.

    Args:
        module: The model that computes.
        initial: The initial parameters, the same for every client.
        clients: The number of clients.
    """

    def __init__(self, module: MultiTaskModel, initial: Params, clients: int) -> None:
        self.module = module
        self._stacked = {name: _repeated(t, clients).clone() for name, t in initial.items()}

    def slots(self) -> dict[str, Tensor]:
        """The tensors themselves, not copies, with the clients as first dimension."""
        return self._stacked


@dataclass
class Cohort:
    """Several clients in the place of one; what differs between them is stacked, or an `Each`."""

    ids: tuple[str, ...]
    """The names of the clients."""
    model: StackedModel
    """The models of all clients."""
    tasks: dict[str, Task]
    """The tasks, which all clients have in common."""
    train: Examples
    """The training examples, with the clients as first dimension."""
    generators: Sequence[Generator]
    """The source of randomness of each client."""
    round: int
    """The current round, counted from 1."""
    rounds: int
    """The number of rounds of the run."""

    @property
    def examples(self) -> Each:
        """The number of training examples of each client, which is the same for all."""
        return Each(dict.fromkeys(self.ids, self.train.tensor.shape[1]))

    def batches(self, size: int, epochs: int) -> Iterator[Examples]:
        """Draws the batches that each client would draw by itself, stacked.

        Args:
            size: The number of examples in a batch.
            epochs: The number of passes over the examples.

        Yields:
            One batch of every client at a time.
        """
        clients = torch.arange(len(self.ids))[:, None]
        examples = self.train.tensor.shape[1]
        for _ in range(epochs):
            order = torch.stack([torch.randperm(examples, generator=g) for g in self.generators])
            inputs = torch.split(self.train.tensor[clients, order], size, 1)
            targets = [torch.split(t[clients, order], size, 1) for t in self.train.targets.values()]
            for number, batch in enumerate(inputs):
                yield Examples(
                    batch, dict(zip(self.train.targets, (t[number] for t in targets), strict=True))
                )

    def gradients(
        self, batch: Examples, weights: Mapping[str, float]
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Computes every client's loss and its gradient.

        Args:
            batch: One batch of every client.
            weights: The weight of each task's loss; 1 for a task that is not listed.

        Returns:
            The gradients by name of the parameter, and the losses, all with the clients as first
            dimension.
        """

        def loss(params: dict[str, Tensor], inputs: Tensor, targets: dict[str, Tensor]) -> Tensor:
            outputs = functional_call(self.model.module, params, (inputs, self.tasks))
            losses = [
                task.loss(outputs[name], targets[name]) * weights.get(name, 1.0)
                for name, task in self.tasks.items()
            ]
            return torch.stack(losses).sum()

        step = vmap(grad_and_value(loss))
        grads, losses = step(self.model.slots(), batch.tensor, batch.targets)
        return grads, losses


def can_be_stacked(model: nn.Module) -> bool:
    """Whether `model` can be in a cohort: it has neither BatchNorm statistics nor dropout."""
    forbidden = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    return not any(isinstance(module, forbidden) for module in model.modules())


def stack_payloads(payloads: Sequence[Payload]) -> Payload:
    """Combines the payloads of several clients into one for their cohort.

    Args:
        payloads: One payload per client.

    Returns:
        A payload in which parameters have the clients as first dimension.

    Raises:
        Failure: If other values than parameters differ between clients.
    """
    return {key: _stacked([payload[key] for payload in payloads]) for key in payloads[0]}


def split_content(content: Payload, ids: Sequence[str]) -> list[Payload]:
    """Splits the answer of a cohort into the answers of its clients.

    Args:
        content: The answer of the cohort.
        ids: The names of the clients.

    Returns:
        One answer per client, in the same order.
    """
    columns = {key: _split(value, ids) for key, value in content.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0]
    if not isinstance(first, Params):
        if any(value is not first and value != first for value in values):
            raise Failure(
                "clients of a cohort were sent different values that are not parameters: set "
                "compute.cohort_step = false"
            )
        return first
    if all(value is first for value in values):
        return Params({name: _repeated(t, len(values)) for name, t in first.items()})
    return Params({name: torch.stack([value[name] for value in values]) for name in first})


def _split(value: Any, ids: Sequence[str]) -> list[Any]:
    if isinstance(value, Each):
        return [value[client] for client in ids]
    if isinstance(value, Params):
        rows = zip(*(tensor.unbind() for tensor in value.values()), strict=True)
        return [Params(dict(zip(value, row, strict=True))) for row in rows]
    return [value] * len(ids)


def _repeated(tensor: Tensor, clients: int) -> Tensor:
    return tensor.expand(clients, *tensor.shape)
