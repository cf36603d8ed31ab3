"""SGD, Adam and AdamW on lists of tensors, and all other optimisers of `torch.optim` by name.

The first use of `torch.optim` takes seconds, because it imports a compiler. Here every update of
SGD, Adam and AdamW is elementwise, so tensors may have a leading dimension that runs over clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, isclass, signature
from typing import Any, Protocol

import torch
from torch import Tensor

from consort.core.plugins import find
from consort.core.registry import did_you_mean
from consort.errors import UsageError

OWN = ("sgd", "adam", "adamw")
"""The names of the optimisers that are built in; others are classes of `torch.optim`."""


class Optimizer(Protocol):
    """Updates parameters by their gradients.

    State such as momentum belongs to positions in the list: every step must be given the same
    parameters in the same order.
    """

    def step(self, params: list[Tensor], grads: list[Tensor], lr: float) -> None:
        """Updates the parameters in place.

        Args:
            params: The parameters, detached from the graph of autograd.
            grads: Their gradients, which are not changed.
            lr: The learning rate.
        """
        ...


@dataclass
class Sgd:
    """Gradient descent, optionally with (heavy-ball) momentum and L2 weight decay."""

    momentum: float = 0.0
    """The factor of the velocity per step."""
    weight_decay: float = 0.0
    """The weight of the L2 penalty."""
    velocity: list[Tensor] = field(default_factory=list)
    """The momentum of each parameter, empty before the first step."""

    def step(self, params: list[Tensor], grads: list[Tensor], lr: float) -> None:
        """v ← momentum · v + (g + weight_decay · p); p ← p - lr · v."""
        if self.weight_decay:
            grads = list(torch._foreach_add(grads, params, alpha=self.weight_decay))
        if self.momentum:
            grads = self._accelerated(grads)
        torch._foreach_add_(params, grads, alpha=-lr)

    def _accelerated(self, grads: list[Tensor]) -> list[Tensor]:
        if self.velocity:
            torch._foreach_mul_(self.velocity, self.momentum)
            torch._foreach_add_(self.velocity, grads)
        else:
            self.velocity = [grad.clone() for grad in grads]
        return self.velocity


@dataclass
class Adam:
    """Adam (Kingma and Ba 2015), or with `decoupled` weight decay AdamW (Loshchilov and Hutter).

    The betas and epsilon are the papers' and PyTorch's defaults.
    """

    weight_decay: float = 0.0
    """The weight decay."""
    decoupled: bool = False
    """Whether weight decay is applied to the parameters directly, as in AdamW."""
    steps: int = 0
    """The number of steps so far."""
    first: list[Tensor] = field(default_factory=list)
    """The running mean m of each gradient."""
    second: list[Tensor] = field(default_factory=list)
    """The running mean v of each squared gradient."""

    def step(self, params: list[Tensor], grads: list[Tensor], lr: float) -> None:
        """p ← p - lr · m / (√v + ε), with m and v corrected for their start at zero."""
        beta1, beta2, epsilon = 0.9, 0.999, 1e-8
        if not self.steps:
            self.first = [torch.zeros_like(param) for param in params]
            self.second = [torch.zeros_like(param) for param in params]
        self.steps += 1
        if self.weight_decay and self.decoupled:
            torch._foreach_mul_(params, 1 - lr * self.weight_decay)
        elif self.weight_decay:
            grads = list(torch._foreach_add(grads, params, alpha=self.weight_decay))
        torch._foreach_lerp_(self.first, grads, 1 - beta1)
        torch._foreach_mul_(self.second, beta2)
        torch._foreach_addcmul_(self.second, grads, grads, 1 - beta2)
        scale = list(torch._foreach_sqrt(self.second))
        torch._foreach_div_(scale, (1 - beta2**self.steps) ** 0.5)
        torch._foreach_add_(scale, epsilon)
        torch._foreach_addcdiv_(params, self.first, scale, -lr / (1 - beta1**self.steps))


@dataclass
class FromTorch:
    """An optimiser of `torch.optim`, or one with the same interface."""

    kind: Any
    """Its class."""
    options: dict[str, Any]
    """Its options besides the learning rate."""
    optimizer: Any = None
    """The optimiser itself; None before the first step."""

    def step(self, params: list[Tensor], grads: list[Tensor], lr: float) -> None:
        """Takes a step of the optimiser of torch, which keeps its state for later steps."""
        if self.optimizer is None:
            self.optimizer = self.kind(params, lr=lr, **self.options)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad
        self.optimizer.step()
        for param in params:
            param.grad = None


def make_optimizer(
    name: str,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    options: Mapping[str, Any] | None = None,
) -> Optimizer:
    """Creates an optimiser.

    Args:
        name: One of `OWN`, a class of `torch.optim`, or the place of a class of your own.
        momentum: The momentum, for optimisers that have one.
        weight_decay: The weight decay.
        options: Further options of a class.

    Returns:
        An optimiser without state.

    Raises:
        UsageError: If there is no such optimiser, or it does not have such an option.
    """
    if name not in OWN:
        return _from_torch(name, momentum, weight_decay, options or {})
    for option in options or {}:
        raise UsageError(
            f"local.optimizer_options: optimizer {name!r} takes no {option!r}: write the class of "
            f"torch.optim, such as {_CLASSES[name]!r}"
        )
    if name == "sgd":
        return Sgd(momentum, weight_decay)
    if momentum:
        raise UsageError(f"optimizer {name!r} takes no momentum: remove it, or use 'sgd'")
    return Adam(weight_decay, decoupled=name == "adamw")


_CLASSES = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}


def optimizer_class(name: str) -> Any:
    """The class of an optimiser that is not built in.

    Args:
        name: The name of a class of `torch.optim`, or a place such as `file.py:Class`.

    Raises:
        UsageError: If there is no such class, or its steps need a closure.
    """
    kinds = {
        key: kind
        for key, kind in vars(torch.optim).items()
        if isclass(kind) and issubclass(kind, torch.optim.Optimizer)
    }
    found = find("optimizers", name) if ":" in name else kinds.get(name)
    if found is None:
        usable = [key for key in kinds if key not in ("Optimizer", "LBFGS")]
        raise UsageError(
            f"local.optimizer: there is no optimizer {did_you_mean(name, [*OWN, *usable])}"
        )
    if signature(found.step).parameters["closure"].default is Parameter.empty:
        raise UsageError(
            f"local.optimizer: {name} computes several losses per step, which local training does "
            "not offer: choose another one"
        )
    return found


def _from_torch(
    name: str, momentum: float, weight_decay: float, options: Mapping[str, Any]
) -> FromTorch:
    kind = optimizer_class(name)
    given = {"momentum": momentum, "weight_decay": weight_decay}
    known = [key for key in signature(kind).parameters if key not in ("params", "lr")]
    chosen = {key: value for key, value in given.items() if value} | dict(options)
    for key in chosen:
        if key not in known:
            where = "local" if key in given else "local.optimizer_options"
            raise UsageError(f"{where}: optimizer {name!r} has no {did_you_mean(key, known)}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in chosen.items()}
    try:
        kind([torch.zeros(1)], lr=0.1, **values)
    except (TypeError, ValueError) as error:
        raise UsageError(f"local.optimizer_options: optimizer {name!r}: {error}") from error
    return FromTorch(kind, values)


def clip_by_norm(grads: Sequence[Tensor], limit: float) -> list[Tensor]:
    """Scales gradients down if their joint norm exceeds a limit.

    Args:
        grads: The gradients.
        limit: The largest norm of all gradients together.

    Returns:
        New tensors, because autograd may return one tensor as the gradient of two parameters.
    """
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(grads))))
    return list(torch._foreach_mul(list(grads), (limit / (norm + 1e-6)).clamp(max=1.0)))
