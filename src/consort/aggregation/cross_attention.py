"""Updates of decoders that attend to each other, one tensor at a time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from consort.core.params import Params

Place = tuple[str, tuple[int, ...]]
"""A tensor inside a decoder, whatever the task: its name there and its shape."""
Decoder = tuple[str, str]
"""A client and one of its tasks."""

MOST = 24
"""Decoders that are listed one by one; if there are more, only their tasks are."""


def attention(rows: Tensor, temperature: float = 0.0) -> Tensor:
    """softmax(V Vᵀ / √d): the weights of all rows for every row, with sum 1.

    With a temperature, rows are compared by the cosine between them, whatever their lengths.
    """
    if temperature > 0:
        directions = torch.nn.functional.normalize(rows, dim=1)
        return torch.softmax(directions @ directions.T / temperature, dim=1)
    return torch.softmax(rows @ rows.T / math.sqrt(rows.shape[1]), dim=1)


class AttentionShares:
    """How much every decoder attended to every other, on average over its tensors."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Decoder, Decoder], float] = defaultdict(float)
        self._tensors: Counter[Decoder] = Counter()

    def add(self, decoders: Sequence[Decoder], weights: Tensor) -> None:
        """Adds the attention weights of one tensor of each of these decoders."""
        self._tensors.update(decoders)
        for one, row in zip(decoders, weights.tolist(), strict=True):
            for other, weight in zip(decoders, row, strict=True):
                self._sums[one, other] += weight

    def means(self) -> dict[str, float]:
        """By `client/task → client/task`, with sum 1 for each on the left.

        Of many decoders only the tasks are listed, with the mean over the decoders of each, so
        that the table stays small.
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
    """For every client, the mixture of all clients' decoders that each of its own attends to.

    Tensors attend to those of the same name and shape in other decoders, `decoders.<task>.<name>`.
    How much they do is added to `shares`.
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
