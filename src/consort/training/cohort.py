"""Many clients with tiny models, trained in one batched step.

A cohort stands in for a client in methods marked `@batchable`: all its tensors have a leading
dimension that runs over the clients. Results agree with one client after the other to about
1e-6, not bit for bit, so a recipe has to ask for it (`compute.cohort_step`).
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

SIZE = 128  # clients per step; the same on every engine, so that bits are


class StackedModel:
    """The parameters of one model per client, in one tensor per name."""

    def __init__(self, module: MultiTaskModel, initial: Params, clients: int) -> None:
        self.module = module
        self._stacked = {name: _repeated(t, clients).clone() for name, t in initial.items()}

    def slots(self) -> dict[str, Tensor]:
        """The live tensors, each with the clients in front."""
        return self._stacked


@dataclass
class Cohort:
    """Stands in for a client; what differs between clients is stacked, or an `Each`."""

    ids: tuple[str, ...]
    model: StackedModel
    tasks: dict[str, Task]
    train: Examples
    generators: Sequence[Generator]
    round: int
    rounds: int

    @property
    def examples(self) -> Each:
        """How many examples each client trains on: equally many."""
        return Each(dict.fromkeys(self.ids, self.train.inputs.shape[1]))

    def batches(self, size: int, epochs: int) -> Iterator[Examples]:
        """The batches each client would see on its own, stacked."""
        clients = torch.arange(len(self.ids))[:, None]
        examples = self.train.inputs.shape[1]
        for _ in range(epochs):
            order = torch.stack([torch.randperm(examples, generator=g) for g in self.generators])
            inputs = torch.split(self.train.inputs[clients, order], size, 1)
            targets = [torch.split(t[clients, order], size, 1) for t in self.train.targets.values()]
            for number, batch in enumerate(inputs):
                yield Examples(
                    batch, dict(zip(self.train.targets, (t[number] for t in targets), strict=True))
                )

    def gradients(
        self, batch: Examples, weights: Mapping[str, float]
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Every client's gradient of its weighted loss, and that loss."""

        def loss(params: dict[str, Tensor], inputs: Tensor, targets: dict[str, Tensor]) -> Tensor:
            outputs = functional_call(self.model.module, params, (inputs, self.tasks))
            losses = [
                task.loss(outputs[name], targets[name]) * weights.get(name, 1.0)
                for name, task in self.tasks.items()
            ]
            return torch.stack(losses).sum()

        step = vmap(grad_and_value(loss))
        grads, losses = step(self.model.slots(), batch.inputs, batch.targets)
        return grads, losses


def can_be_stacked(model: nn.Module) -> bool:
    """Whether all of a model's behaviour is in its parameters: no statistics, no dropout."""
    forbidden = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd)
    return not any(isinstance(module, forbidden) for module in model.modules())


def stack_payloads(payloads: Sequence[Payload]) -> Payload:
    """One payload for the cohort: parameters get the clients in front, the rest must be equal."""
    return {key: _stacked([payload[key] for payload in payloads]) for key in payloads[0]}


def split_content(content: Payload, ids: Sequence[str]) -> list[Payload]:
    """One answer per client from the cohort's."""
    columns = {key: _split(value, ids) for key, value in content.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0]
    if not isinstance(first, Params):
        if any(value is not first and value != first for value in values):
            raise Failure("a cohort cannot be sent plain values that differ")
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
