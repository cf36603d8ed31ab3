"""Sums of vectors, a few numbers at a time so that no copy of all is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from consort.params import Params

_PIECE = 1 << 16  # numbers of each vector at a time: few calls, and the cache holds their rows


def pieces(vectors: Sequence[Mapping[str, Tensor]]) -> Iterator[tuple[str, int, Tensor]]:
    """All vectors piece by piece, each as a row, with the tensor's name and the piece's number."""
    for name in vectors[0]:
        parts = [in_pieces(vector[name]) for vector in vectors]
        for number, rows in enumerate(zip(*parts, strict=True)):
            yield name, number, torch.stack(rows)


def in_pieces(tensor: Tensor) -> tuple[Tensor, ...]:
    """A tensor cut into pieces, flat."""
    return torch.split(tensor.reshape(-1), _PIECE)


def combined(vectors: Sequence[Params], factors: Tensor) -> Params:
    """The sum of all vectors times their factors."""
    total: dict[str, Tensor] = {}
    for name, number, rows in pieces(vectors):
        if number == 0:  # in plain order, so that its pieces are views
            plain = torch.contiguous_format
            total[name] = torch.empty_like(vectors[0][name], memory_format=plain)
            sums = in_pieces(total[name])
        torch.mv(rows.T, factors.to(rows.dtype), out=sums[number])
    return Params(total)
