"""Examples whose gradient points where a client's update points, found by descent.

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
"""From inputs to the gradient of the loss they cause, with a graph."""


class Inverted(NamedTuple):
    """Inputs that explain an update, and how well: 1 is a gradient of the very same direction."""

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
) -> Inverted:
    """Moves inputs until their gradient has the direction of `target`, preferring smooth ones.

    The rate is in shares of the range of values, and falls to a hundredth towards the end. Only
    signs of the descent are followed, since its size differs by magnitudes between pixels.
    """
    low, high = bounds
    inputs, best = start.clone(), Inverted(start, -1.0)
    optimizer = make_optimizer("adam", 0.0, 0.0)
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels cannot be derived twice
        for step in range(steps):
            inputs.requires_grad_()
            agreement = cosine(gradient(inputs), target)
            if agreement.item() > best.cosine:
                best = Inverted(inputs.detach().clone(), agreement.item())
            loss = 1 - agreement + smoothness * total_variation(inputs / (high - low))
            (slope,) = torch.autograd.grad(loss, [inputs])
            inputs = inputs.detach()
            falling = rate * (high - low) * 0.01 ** (step / steps)
            optimizer.step([inputs], [slope.sign()], falling)
            inputs.clamp_(low, high)
    return best


def cosine(found: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """Of the angle between two lists of tensors, each taken as one vector."""
    pairs = list(zip(found, target, strict=True))
    product = torch.stack([(one * other).sum() for one, other in pairs]).sum()
    lengths = [
        torch.stack([part.square().sum() for part in side]).sum() for side in (found, target)
    ]
    return product / (lengths[0] * lengths[1]).clamp(min=1e-30).sqrt()


def total_variation(images: Tensor) -> Tensor:
    """The mean step between neighbours; nothing for inputs that are no pictures."""
    if images.ndim < 4:
        return images.new_zeros(())
    steps = [images.diff(dim=side).abs() for side in (-1, -2) if images.shape[side] > 1]
    return torch.stack([step.mean() for step in steps]).sum() if steps else images.new_zeros(())
