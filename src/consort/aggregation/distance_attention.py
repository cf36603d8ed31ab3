"""Weights for averaging models that decrease with the distance between them.

Huang, Chu, Zhou, Wang, Liu, Pei and Zhang: Personalized Cross-Silo Federated Learning on Non-IID
Data, AAAI 2021 (FedAMP).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor

from consort.core.params import Params


def squared_distances(models: Sequence[Params]) -> Tensor:
    """The squared distance between every two models, without BatchNorm statistics.

    Args:
        models: The models.

    Returns:
        A square matrix.
    """
    points = [model.without("buffers") for model in models]
    distances = torch.zeros(len(points), len(points), dtype=torch.float64)
    for i, j in combinations(range(len(points)), 2):
        distances[i, j] = distances[j, i] = (points[i] - points[j]).norm() ** 2
    return distances


def distance_attention(distances: Tensor, alpha: float, sigma: float) -> Tensor:
    """Row i: the weights xi of all models in the cloud model of client i; they sum to 1.

    The weight of another model is alpha / sigma · exp(-distance / sigma), with distances in units
    of their mean. Where the own model would be left with less than its share of a plain mean, the
    weights of the others are scaled down together.

    Args:
        distances: The squared distance between every two models.
        alpha: The server's step towards similar models.
        sigma: The distance over which the weight falls to 1/e.

    Returns:
        A square matrix.
    """
    count = len(distances)
    unit = distances.sum() / max(count * (count - 1), 1)
    relative = distances / unit if unit > 0 else distances
    others = (alpha / sigma * torch.exp(-relative / sigma)).fill_diagonal_(0)
    total, most = others.sum(1, keepdim=True), 1 - 1 / max(count, 1)
    others *= torch.where(total > most, most / total, 1.0)
    return others + torch.diag(1 - others.sum(1))
