"""SGD, Adam and AdamW on lists of tensors.

The first use of `torch.optim` takes seconds, because it imports a compiler. Here every update is
elementwise, so tensors may have a leading dimension that runs over clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

import torch
from torch import Tensor

from consort.errors import UsageError

OptimizerName = Literal["sgd", "adam", "adamw"]
"""The names of the optimisers in recipes."""


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


def make_optimizer(
    name: OptimizerName, momentum: float = 0.0, weight_decay: float = 0.0
) -> Optimizer:
    """Creates an optimiser.

    Args:
        name: Which optimiser.
        momentum: The momentum, for SGD only.
        weight_decay: The weight decay.

    Returns:
        An optimiser without state.

    Raises:
        UsageError: If there is no such optimiser, or it has no momentum.
    """
    if name not in get_args(OptimizerName):
        raise UsageError(f"there is no optimizer {name!r}: use sgd, adam or adamw")
    if name == "sgd":
        return Sgd(momentum, weight_decay)
    if momentum:
        raise UsageError(f"optimizer {name!r} takes no momentum: remove it, or use 'sgd'")
    return Adam(weight_decay, decoupled=name == "adamw")


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
