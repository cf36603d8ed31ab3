"""The shortest convex combination of several vectors.

Of gradients, it is a direction that improves all objectives at once, or zero where there is none
(Désidéri: Multiple-gradient descent algorithm for multiobjective optimization, 2012).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

from consort.errors import Failure, NoReplies

_PIECE = 1 << 14
"""Numbers of each vector that are summed up at a time, few enough for sums in fp32."""
_FEW = 12  # vectors for which products one by one are faster
_NEGLIGIBLE = 1e-12  # of the largest inner product


def gram(vectors: Sequence[Mapping[str, Tensor]]) -> Tensor:
    """All inner products: short fp32 sums, added up in fp64 (exact to about 1e-6).

    Args:
        vectors: The vectors, each as tensors by name.

    Returns:
        A square matrix.

    Raises:
        NoReplies: If there are no vectors.
    """
    return sum(grams(vectors, lambda _: "").values(), start=_zeros(len(vectors)))


def grams(
    vectors: Sequence[Mapping[str, Tensor]], part_of: Callable[[str], str]
) -> dict[str, Tensor]:
    """All inner products within each part of the vectors, in one pass over them.

    Args:
        vectors: The vectors, each as tensors by name.
        part_of: Returns the part that a tensor belongs to, from its name.

    Returns:
        A square matrix by part.

    Raises:
        NoReplies: If there are no vectors.
    """
    if not vectors:
        raise NoReplies("there are no vectors to combine")
    found: dict[str, list[Tensor]] = {}
    for name in vectors[0]:
        rows = [vector[name].reshape(-1) for vector in vectors]
        few = len(rows) <= _FEW and len(rows[0]) >= _PIECE
        few = few and rows[0].dtype != torch.bfloat16  # which numpy lacks
        found.setdefault(part_of(name), []).append((_two_by_two if few else _at_once)(rows))
    return {part: torch.cat(matrices).double().sum(0) for part, matrices in found.items()}


def total_gram(products: Mapping[str, Tensor], count: int) -> Tensor:
    """The sum over all parts of the `products` from `grams`, for the first `count` vectors."""
    return torch.stack(list(products.values())).sum(0)[:count, :count]


def _at_once(rows: list[Tensor]) -> Tensor:
    """The inner products of each piece of the rows."""
    pieces = zip(*(torch.split(row, _PIECE) for row in rows), strict=True)
    return torch.stack([piece @ piece.T for piece in map(torch.stack, pieces)])


def _two_by_two(rows: list[Tensor]) -> Tensor:
    """The same one by one, which is faster for few long vectors than narrow matrix products."""
    arrays = [row.numpy() for row in rows]
    starts = range(0, len(arrays[0]), _PIECE)
    dots = [
        piece.dot(other)
        for pieces in ([array[s : s + _PIECE] for array in arrays] for s in starts)
        for place, piece in enumerate(pieces)
        for other in pieces[: place + 1]
    ]
    return torch.tensor(np.array(dots)).view(len(starts), -1)[:, _mirrored(len(rows))]


@cache
def _mirrored(count: int) -> Tensor:
    """For every entry of a symmetric matrix, its position in the list of the lower half."""
    rows, columns = torch.tril_indices(count, count)
    places = torch.empty(count, count, dtype=torch.int64)
    places[rows, columns] = places[columns, rows] = torch.arange(len(rows))
    return places


def _zeros(count: int) -> Tensor:
    return torch.zeros(count, count, dtype=torch.float64)


def min_norm_weights(gram: Tensor, centre: Tensor | None = None, radius: float = 1.0) -> Tensor:
    """The w ≥ 0 with sum 1 that minimises wᵀ G w, for G a matrix of inner products.

    Of several equally good w, the most even one is chosen.

    Args:
        gram: The matrix G.
        centre: Weights (scaled to sum 1) from which w may differ only by `radius`.
        radius: The largest difference of each weight from that in `centre`.

    Returns:
        The weights w.

    Raises:
        Failure: If an inner product is not finite.

    >>> min_norm_weights(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))  # of (2, 0) and (0, 1)
    tensor([0.2000, 0.8000], dtype=torch.float64)
    """
    gram = (gram + gram.T).double() / 2
    if not bool(gram.isfinite().all()):
        raise Failure("updates are too large to be compared: lower the learning rate")
    start = torch.ones(len(gram)).double() if centre is None else centre.double()
    start = start / start.sum()
    lower, upper = (start - radius).clamp(min=0), (start + radius).clamp(max=1)
    if radius == 0:
        return start
    if len(gram) == 2:
        return _of_two(gram, lower, upper)
    return _active_set(_strictly_convex(gram), lower, upper, start)


def _of_two(gram: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The closed form: (1 - s) a + s b is shortest at s = a·(a - b) / ||a - b||²."""
    (aa, ab), (_, bb) = gram.tolist()
    gap = aa + bb - 2 * ab
    best = 0.5 if gap <= _NEGLIGIBLE * (aa + bb) else (aa - ab) / gap
    second = min(max(best, float(lower[1])), float(upper[1]))
    return torch.tensor([1 - second, second], dtype=torch.float64)


def _strictly_convex(gram: Tensor) -> Tensor:
    """The matrix, scaled, without the tiny and negative eigenvalues that rounding leaves."""
    values, vectors = torch.linalg.eigh(gram)
    largest = values[-1].clamp(min=torch.finfo(torch.float64).tiny)
    convex: Tensor = (vectors * (values / largest).clamp(min=_NEGLIGIBLE)) @ vectors.T
    return convex


def _active_set(matrix: Tensor, lower: Tensor, upper: Tensor, weights: Tensor) -> Tensor:
    """Minimises over the box and sum 1, from a point inside (Nocedal and Wright, Algorithm 16.3).

    Moves towards the minimum over the free weights and stops at the first bound, where it fixes
    that weight. At a minimum, frees the fixed weight whose release decreases the objective most.
    """
    free = torch.ones(len(weights), dtype=torch.bool)
    for _ in range(100 * len(weights)):
        move = _minimum(matrix, weights, free) - weights
        bound = torch.where(move > 0, upper, lower)
        reach = torch.where(move != 0, (bound - weights) / move, torch.inf)
        nearest = int(reach.argmin())
        if reach[nearest] < 1:
            weights = weights + reach[nearest] * move
            weights[nearest] = bound[nearest]
            free[nearest] = False
            continue
        weights = weights + move
        slope = matrix @ weights
        above = slope - slope[free].mean()
        pressure = torch.where(weights <= lower, -above, above).masked_fill(free, 0.0)
        strongest = int(pressure.argmax())
        if pressure[strongest] <= _NEGLIGIBLE:
            break
        free[strongest] = True
    return weights.clamp(lower, upper)


def _minimum(matrix: Tensor, weights: Tensor, free: Tensor) -> Tensor:
    """The minimum with sum 1 over the free weights, while the others are fixed."""
    count = int(free.sum())
    if count == 1:  # the sum determines it, and rounding must not move it beyond its bound
        return weights
    held = torch.where(free, 0.0, weights)
    system = torch.ones(count + 1, count + 1, dtype=torch.float64)
    system[:-1, :-1] = matrix[free][:, free]
    system[-1, -1] = 0.0
    right = torch.cat([-(matrix @ held)[free], (1 - held.sum()).reshape(1)])
    held[free] = torch.linalg.solve(system, right)[:-1]
    return held
