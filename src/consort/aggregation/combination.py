"""Updates of models, and sums of them, one tensor at a time so that no copy of all is made."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from consort.params import Params


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


def combination(vectors: Sequence[Mapping[str, Tensor]], factors: Sequence[float]) -> Params:
    """The sum of all vectors times their factors, in the order given."""
    first, *others = zip(vectors, factors, strict=True)
    total = {}
    for name in first[0]:
        total[name] = first[0][name] * first[1]
        for vector, factor in others:
            total[name].add_(vector[name], alpha=factor)
    return Params(total)


def inner(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The inner product over the names of `one`."""
    return math.fsum(Params({n: one[n]}).dot(Params({n: other[n]})) for n in one)
