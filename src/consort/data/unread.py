"""Inputs that stay where they are until a batch of them is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from consort.core.inputs import Inputs, first_of


class Source(Protocol):
    """Where inputs are read from, such as a torch `Dataset` or a file mapped into memory."""

    def read(self, index: Tensor) -> Inputs:
        """Reads some of the inputs.

        Args:
            index: Their positions, in the order of the result.
        """
        ...


@dataclass(frozen=True, eq=False)
class Unread:
    """Some of the inputs of a source, in an order of their own, not yet read."""

    source: Source
    """Where they are read from."""
    index: Tensor
    """Their positions in the source."""
    changes: tuple[Callable[[Any], Any], ...] = ()
    """What is done to inputs after they were read, in this order."""

    def __len__(self) -> int:
        return len(self.index)

    def take(self, index: Tensor) -> Unread:
        """The inputs at the positions `index`, still not read."""
        return replace(self, index=self.index.index_select(0, index))

    def changed(self, change: Callable[[Any], Any]) -> Unread:
        """The same inputs, to which `change` is applied when they are read."""
        return replace(self, changes=(*self.changes, change))

    def read(self) -> Inputs:
        """Reads all of these inputs."""
        found: Any = self.source.read(self.index)
        for change in self.changes:
            found = change(found)
        inputs: Inputs = found
        return inputs

    def split(self, sizes: list[int]) -> Iterator[Inputs]:
        """Reads consecutive parts, one after the other.

        Args:
            sizes: The number of inputs of each part.
        """
        for part in torch.split_with_sizes(self.index, sizes):
            yield replace(self, index=part).read()

    @staticmethod
    def joined(parts: Sequence[Inputs | Unread]) -> Unread:
        """All inputs of several sets, one set after the other.

        Args:
            parts: The sets, of which some are not read.
        """
        lengths = [len(part) if isinstance(part, Unread) else len(first_of(part)) for part in parts]
        return Unread(_Joined(parts, lengths), torch.arange(sum(lengths)))


class _Joined:
    """Several sets of inputs, one after the other."""

    def __init__(self, parts: Sequence[Inputs | Unread], lengths: Sequence[int]) -> None:
        self._parts = parts
        self._ends = torch.tensor(lengths).cumsum(0)
        self._starts = self._ends - torch.tensor(lengths)

    def read(self, index: Tensor) -> Inputs:
        """The inputs at the positions `index`."""
        rows = [self._row(int(place)) for place in index]
        first = rows[0]
        if isinstance(first, Tensor):
            return torch.cat(rows)  # type: ignore[arg-type]
        return {name: torch.cat([row[name] for row in rows]) for name in first}  # type: ignore[index]

    def _row(self, place: int) -> Inputs:
        number = int(torch.searchsorted(self._ends, place, right=True))
        part, inside = self._parts[number], torch.tensor([place - int(self._starts[number])])
        if isinstance(part, Unread):
            return part.take(inside).read()
        if isinstance(part, Tensor):
            return part[inside]
        return {name: tensor[inside] for name, tensor in part.items()}
