"""Updates of models, and sums of them, a few numbers at a time so that no copy of all is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from consort.params import Params

_PIECE = 1 << 17  # numbers of each vector at a time: few calls, and the cache holds their rows
Pieces = tuple[Tensor, ...]


class Update(Mapping[str, Tensor]):
    """What training added to some parameters, computed where it is looked at."""

    def __init__(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
        self.before, self.after = before, after

    def __getitem__(self, name: str) -> Tensor:
        return self.after[name] - self.before[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.after)

    def __len__(self) -> int:
        return len(self.after)


def pieces(vectors: Sequence[Mapping[str, Tensor]]) -> Iterator[tuple[str, int, Tensor]]:
    """All vectors piece by piece, each as a row; the next piece overwrites the last.

    With every piece come its tensor's name and its number in that tensor.
    """
    for name in vectors[0]:
        ends = [_ends(vector, name) for vector in vectors]
        longest = min(ends[0][0][0].numel(), _PIECE)
        buffer = ends[0][0][0].new_empty(len(vectors), longest)
        for number, first in enumerate(ends[0][0]):
            rows = buffer[:, : len(first)]
            for row, (after, before) in zip(rows.unbind(), ends, strict=True):
                if before:
                    torch.sub(after[number], before[number], out=row)
                else:
                    row.copy_(after[number])
            yield name, number, rows


def _ends(vector: Mapping[str, Tensor], name: str) -> tuple[Pieces, Pieces]:
    """A tensor of a vector in pieces; of an update, those it is the difference of."""
    if isinstance(vector, Update):
        return in_pieces(vector.after[name]), in_pieces(vector.before[name])
    return in_pieces(vector[name]), ()


def in_pieces(tensor: Tensor) -> Pieces:
    """A tensor cut into pieces, flat."""
    return torch.split(tensor.reshape(-1), _PIECE)


def joined(
    updates: Sequence[Update],
    factors: Sequence[float],
    shares: Sequence[Mapping[str, float]],
    groups: Sequence[Sequence[int]],
) -> tuple[Params, list[Params]]:
    """The sum of all updates times their factors, and every model with its share of that sum.

    Shares are by name. A model whose group has others took the mean step of its group instead of
    its own. One pass over all models makes everything.
    """
    total: dict[str, Tensor] = {}
    models: list[dict[str, Tensor]] = [{} for _ in updates]
    for name, number, rows in pieces(updates):
        if number == 0:
            like = updates[0].after[name]
            for made in (total, *models):  # in plain order, so that its pieces are views
                made[name] = torch.empty_like(like, memory_format=torch.contiguous_format)
            sums, parts = in_pieces(total[name]), [in_pieces(model[name]) for model in models]
            ends = [_ends(update, name) for update in updates]
            weights = torch.tensor(factors, dtype=rows.dtype)
        added = torch.mv(rows.T, weights, out=sums[number])
        for part, (after, before), share, group in zip(parts, ends, shares, groups, strict=True):
            own = after[number]
            if len(group) > 1:
                own = before[number] + rows[list(group)].mean(0)
            torch.add(own, added, alpha=share[name], out=part[number])
    return Params(total), [Params(model) for model in models]
