"""Compression of matrices by truncated singular value decompositions, where that is smaller."""

from __future__ import annotations

import torch
from torch import Tensor

from consort.core.params import Params
from consort.core.wire import FACTORS, Shapes


def compress(params: Params, energy: float) -> Params:
    """Replaces every matrix by its largest singular values and their vectors.

    A matrix that would not become smaller is not changed. A tensor with more dimensions counts as
    a matrix with one row per output. The factors u sigma and v of one singular value are one row,
    with as many numbers as the matrix has rows and columns together.

    Args:
        params: The parameters.
        energy: The share of the sum of squared singular values to keep, with as few of them as
            possible.

    Returns:
        The compressed parameters.
    """
    short: dict[str, Tensor] = {}
    for name, tensor in params.items():
        rows = _factors(tensor.flatten(1), energy) if tensor.ndim > 1 else tensor
        shorter = rows.numel() < tensor.numel()
        short |= {name + FACTORS: rows} if shorter else {name: tensor}
    return Params(short)


def expand(short: Params, shapes: Shapes) -> Params:
    """The inverse of `compress`, up to the singular values that it left out.

    Args:
        short: What `compress` returned.
        shapes: The shapes of the original parameters.

    Returns:
        The parameters in their original shapes.
    """
    whole: dict[str, Tensor] = {}
    for name, tensor in short.items():
        original = name.removesuffix(FACTORS)
        if name != original:
            shape = shapes[original]
            left, right = tensor[:, : shape[0]], tensor[:, shape[0] :]
            tensor = (left.T @ right).view(shape)
        whole[original] = tensor
    return Params(whole)


def _factors(matrix: Tensor, energy: float) -> Tensor:
    left, sigma, right = torch.linalg.svd(matrix, full_matrices=False)
    squares = sigma.double().square().cumsum(0)
    rank = int((squares < energy * squares[-1]).sum()) + 1
    return torch.cat([(left * sigma).T[:rank], right[:rank]], dim=1)
