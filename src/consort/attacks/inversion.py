"""Gradient inversion: optimises inputs until their gradient has the direction of an update.

Geiping, Bauermeister, Dröge and Moeller: Inverting Gradients - How easy is it to break privacy in
federated learning?, NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from consort.training.optimizers import make_optimizer

Gradient = Callable[[Tensor], Sequence[Tensor]]
"""Maps inputs to the gradient of their loss, with a graph for second derivatives."""


class Inversion(NamedTuple):
    """Recovered inputs, and the cosine between their gradient and the update."""

    inputs: Tensor
    cosine: float


def invert(
    gradient: Gradient,
    target: Sequence[Tensor],
    start: Tensor,
    bounds: tuple[float, float] = (0.0, 1.0),
    steps: int = 300,
    rate: float = 0.1,
    smoothness: float = 0.01,
) -> Inversion:
    """Optimises inputs until their gradient has the direction of a target, preferring smooth ones.

    Only the signs of the derivatives are used, since their magnitudes differ widely between
    pixels.

    Args:
        gradient: Computes the gradient of inputs.
        target: The update to explain.
        start: The first inputs.
        bounds: The range of input values.
        steps: The number of optimisation steps.
        rate: The step size as a share of the range; falls to a hundredth towards the end.
        smoothness: The weight of the total variation.

    Returns:
        The inputs with the highest cosine.
    """
    low, high = bounds
    inputs, best = start.clone(), Inversion(start, -1.0)
    optimizer = make_optimizer("adam", 0.0, 0.0)
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no second derivatives
        for step in range(steps):
            inputs.requires_grad_()
            agreement = cosine(gradient(inputs), target)
            if agreement.item() > best.cosine:
                best = Inversion(inputs.detach().clone(), agreement.item())
            loss = 1 - agreement + smoothness * total_variation(inputs / (high - low))
            (slope,) = torch.autograd.grad(loss, [inputs])
            inputs = inputs.detach()
            falling = rate * (high - low) * 0.01 ** (step / steps)
            optimizer.step([inputs], [slope.sign()], falling)
            inputs.clamp_(low, high)
    return best


def cosine(found: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """The cosine between two lists of tensors, each taken as one vector."""
    pairs = list(zip(found, target, strict=True))
    product = torch.stack([(one * other).sum() for one, other in pairs]).sum()
    lengths = [
        torch.stack([part.square().sum() for part in side]).sum() for side in (found, target)
    ]
    return product / (lengths[0] * lengths[1]).clamp(min=1e-30).sqrt()


def total_variation(images: Tensor) -> Tensor:
    """The mean difference between neighbouring pixels; zero for inputs that are not images."""
    if images.ndim < 4:
        return images.new_zeros(())
    steps = [images.diff(dim=side).abs() for side in (-1, -2) if images.shape[side] > 1]
    return torch.stack([step.mean() for step in steps]).sum() if steps else images.new_zeros(())
