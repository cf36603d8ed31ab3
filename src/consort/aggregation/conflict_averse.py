"""Conflict-averse aggregation: the update near the mean with the largest worst inner product.

Liu, Liu, Jin, Stone and Liu: Conflict-Averse Gradient Descent for Multi-task Learning (CAGrad),
NeurIPS 2021: the largest min_i ⟨d, Δ_i⟩ among all d with ||d - mean Δ|| ≤ c ||mean Δ||.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from consort.aggregation.min_norm import min_norm_weights
from consort.errors import Failure

_NEGLIGIBLE = 1e-4  # a sum that is zero has up to this length, because inner products are rounded
_EXACT = 1e-15  # tolerance of the length of the mixture, for updates with mean length 1


def conflict_averse_factors(gram: Tensor, c: float) -> Tensor:
    """The factor of every update Δ_i in d.

    Args:
        gram: All inner products of the updates.
        c: The radius around the mean update, as a multiple of its length.

    Returns:
        One factor per update.

    Raises:
        Failure: If an inner product is not finite.
    """
    scaled, mean, radius = _scaled(gram, c)
    factors = mean
    if radius > 0:
        weights = conflict_averse_weights(gram, c)
        length = _length(scaled, weights)
        if length > _NEGLIGIBLE:  # else the updates are opposed and there is nothing to add
            factors = mean + radius / length * weights
    return factors


def conflict_averse_weights(gram: Tensor, c: float) -> Tensor:
    """The w ≥ 0 with sum 1 that minimises ⟨u, mean⟩ + c ||mean|| ||u||, where u = Σ w_i Δ_i.

    For a given length s of u, this is the shortest convex combination of all
    Δ_i + s / (c ||mean||) mean. The s that equals the length of that combination is found by
    bisection between 0 and the longest update.

    Args:
        gram: All inner products of the updates.
        c: The radius around the mean update, as a multiple of its length.

    Returns:
        One weight per update.

    Raises:
        Failure: If an inner product is not finite.
    """
    scaled, mean, radius = _scaled(gram, c)
    products = scaled @ mean
    if radius == 0:
        return torch.nn.functional.one_hot(products.argmin(), len(gram)).double()
    square = mean @ products

    def shortest(length: float) -> Tensor:
        shift = length / radius
        shifted = scaled + shift * (products[:, None] + products) + shift**2 * square
        return min_norm_weights(shifted)

    from scipy.optimize import brentq

    def beyond(length: float) -> float:
        return _length(scaled, shortest(length)) - length

    longest = math.sqrt(float(scaled.diagonal().max()))
    least = _NEGLIGIBLE * longest
    if beyond(least) <= 0:  # the updates are opposed: a combination of them is zero
        return shortest(0.0)
    return shortest(brentq(beyond, least, 2 * longest, xtol=_EXACT))


def _scaled(gram: Tensor, c: float) -> tuple[Tensor, Tensor, float]:
    """Inner products of updates scaled to mean length 1, equal weights, and the radius."""
    if not bool(gram.isfinite().all()):
        raise Failure("updates are too large to be compared: lower the learning rate")
    gram = gram.double()
    unit = float(gram.diagonal().mean())
    scaled = gram / unit if unit > 0 else gram
    mean = torch.full((len(gram),), 1 / len(gram), dtype=torch.float64)
    return scaled, mean, c * _length(scaled, mean)


def _length(gram: Tensor, weights: Tensor) -> float:
    return math.sqrt(max(float(weights @ gram @ weights), 0.0))
