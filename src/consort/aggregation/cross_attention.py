"""Attention between the updates of decoders, for each tensor separately."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from consort.core.params import Params

Place = tuple[str, tuple[int, ...]]
"""A tensor inside a decoder of any task: its name there and its shape."""
Decoder = tuple[str, str]
"""A client and one of its tasks."""

MOST = 24
"""The largest number of decoders that are listed one by one, and not by task."""


def attention(rows: Tensor, temperature: float = 0.0) -> Tensor:
    """softmax(V Vᵀ / √d): the weights of all rows for every row, with sum 1.

    Args:
        rows: The matrix V.
        temperature: If positive, the softmax is that of the cosines between rows, divided by the
            temperature.

    Returns:
        A square matrix of weights.
    """
    if temperature > 0:
        directions = torch.nn.functional.normalize(rows, dim=1)
        return torch.softmax(directions @ directions.T / temperature, dim=1)
    return torch.softmax(rows @ rows.T / math.sqrt(rows.shape[1]), dim=1)


class AttentionShares:
    """Collects how much every decoder attends to every other, on average over its tensors."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Decoder, Decoder], float] = defaultdict(float)
        self._tensors: Counter[Decoder] = Counter()

    def add(self, decoders: Sequence[Decoder], weights: Tensor) -> None:
        """Adds the attention weights of one tensor of several decoders.

        Args:
            decoders: The decoders that have the tensor.
            weights: The weights of all of them for each of them.
        """
        self._tensors.update(decoders)
        for one, row in zip(decoders, weights.tolist(), strict=True):
            for other, weight in zip(decoders, row, strict=True):
                self._sums[one, other] += weight

    def means(self) -> dict[str, float]:
        """The mean attention weights.

        Returns:
            The weights by `client/task → client/task`, with sum 1 for each decoder on the left. Of
            more than `MOST` decoders only the tasks are listed, with means over their decoders.
        """
        many = len(self._tensors) > MOST
        names = {(c, task): task if many else f"{c}/{task}" for c, task in self._tensors}
        alike = Counter(names.values())
        shares: dict[tuple[str, str], float] = defaultdict(float)
        whole: dict[str, float] = defaultdict(float)
        for (one, other), total in self._sums.items():
            share = total / self._tensors[one] / alike[names[other]]
            shares[names[one], names[other]] += share
            whole[names[one]] += share
        return {f"{one} → {other}": s / whole[one] for (one, other), s in shares.items()}


def attend(
    updates: Mapping[str, Mapping[str, Tensor]],
    temperature: float = 0.0,
    shares: AttentionShares | None = None,
) -> dict[str, Params]:
    """Mixes the updates of all clients' decoders by attention.

    A tensor `decoders.<task>.<name>` attends to those with the same name and shape in all decoders.

    Args:
        updates: By client, the updates of its decoders.
        temperature: See `attention`.
        shares: Collects the attention weights, if given.

    Returns:
        By client, the mixture for each of its tensors.
    """
    alike: dict[Place, list[tuple[str, str]]] = defaultdict(list)
    for client, update in updates.items():
        for name, tensor in update.items():
            alike[name.split(".", 2)[2], tuple(tensor.shape)].append((client, name))
    seen: dict[str, dict[str, Tensor]] = {client: {} for client in updates}
    for (_, shape), owners in alike.items():
        rows = torch.stack([updates[client][name].reshape(-1) for client, name in owners])
        weights = attention(rows, temperature)
        for (client, name), row in zip(owners, weights @ rows, strict=True):
            seen[client][name] = row.reshape(shape)
        if shares is not None:
            shares.add([(client, name.split(".", 2)[1]) for client, name in owners], weights)
    return {client: Params(found) for client, found in seen.items()}
