"""Updates of decoders that attend to each other, one tensor at a time."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

from consort.params import Params

Place = tuple[str, tuple[int, ...]]
"""A tensor inside a decoder, whatever the task: its name there and its shape."""


def cross_attention(rows: Tensor) -> Tensor:
    """Every row's mixture of all rows, by softmax(V Vᵀ / √d) V."""
    return attention(rows) @ rows


def attention(rows: Tensor) -> Tensor:
    """What every row attends to: weights with sum 1."""
    return torch.softmax(rows @ rows.T / math.sqrt(rows.shape[1]), dim=1)


def attend(updates: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Params]:
    """For every client, what its decoders see in the decoders of all clients and tasks.

    Tensors attend to those of the same name and shape in other decoders, `decoders.<task>.<name>`.
    """
    alike: dict[Place, list[tuple[str, str]]] = defaultdict(list)
    for client, update in updates.items():
        for name, tensor in update.items():
            alike[name.split(".", 2)[2], tuple(tensor.shape)].append((client, name))
    seen: dict[str, dict[str, Tensor]] = {client: {} for client in updates}
    for (_, shape), owners in alike.items():
        rows = torch.stack([updates[client][name].reshape(-1) for client, name in owners])
        for (client, name), row in zip(owners, cross_attention(rows), strict=True):
            seen[client][name] = row.reshape(shape)
    return {client: Params(found) for client, found in seen.items()}
