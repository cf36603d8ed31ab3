"""Aggregation weights between 0 and 1 that the server learns: FedHCA²'s alpha and beta.

Lu, Huang, Yang, Sirejiding, Ding and Lu: FedHCA², CVPR 2024. The server adds `weight * added` to a
client's model. By the chain rule, with the client's next update Δθ in the place of the negative
gradient of its loss, the loss has the slope -⟨added, Δθ⟩ with respect to the weight: the weight of
a client increases if its next update continues in the direction of what was added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

Weights = dict[str, float]
"""One number by part of the model: the encoder, and every layer of every decoder."""


def slopes(products: Mapping[str, Tensor], place: int, cosine: bool = False) -> Weights:
    """The slope of a client's loss with respect to each of its weights.

    Args:
        products: By part, all inner products of some updates and, last, of what was added.
        place: The position of the client's update.
        cosine: Whether the slope is the negative cosine of the angle between the two instead.

    Returns:
        The slopes by part.
    """
    return {part: _slope(matrix, place, cosine) for part, matrix in products.items()}


def _slope(products: Tensor, place: int, cosine: bool) -> float:
    slope = -float(products[-1, place])
    if not cosine:
        return slope
    lengths = math.sqrt(float(products[-1, -1]) * float(products[place, place]))
    return slope / lengths if lengths else 0.0


def learnt(
    weights: Weights, speeds: Weights, slopes: Weights, lr: float, momentum: float, decay: float
) -> tuple[Weights, Weights]:
    """One step of SGD with momentum and weight decay, projected back to [0, 1].

    Args:
        weights: The weights.
        speeds: Their momentum.
        slopes: Their gradients.
        lr: The learning rate.
        momentum: The factor of the momentum.
        decay: The weight decay.

    Returns:
        The new weights and their momentum.
    """
    speeds = {p: momentum * speeds[p] + slopes[p] + decay * w for p, w in weights.items()}
    moved = {p: w - lr * speeds[p] for p, w in weights.items()}
    return {p: min(max(w, 0.0), 1.0) for p, w in moved.items()}, speeds
