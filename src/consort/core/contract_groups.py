"""Entries of answers that are made of others: lists, maps, and what may be missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from consort.core.contract import Entry, Size, Whole, shown
from consort.core.known import Known, check_kind
from consort.core.limits import LONGEST_NAME
from consort.errors import Refused

_MOST_FEATURES, _MOST_CLASSES = 1 << 20, 1 << 16


@dataclass(frozen=True)
class Maybe(Entry):
    """An entry that is None if there is nothing to tell.

    Examples:
        >>> from consort import Maybe, Number, on_client
        >>> @on_client(gap=Maybe(Number(-1, 1)))
        ... def train(self, client, model): ...
    """

    entry: Entry
    """What it is otherwise."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Accepts None as well.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        if value is not None:
            self.entry.check(value, where, known)

    def size(self, known: Known) -> Size:
        """The size of the entry.

        Args:
            known: What the server knows about the client.
        """
        return self.entry.size(known)


class Optional(Maybe):
    """An entry that may be missing.

    Examples:
        >>> from consort import Number, Optional, on_client
        >>> @on_client(setback=Optional(Number()))
        ... def train(self, client, model): ...
    """

    def check(self, value: Any, where: str, known: Known) -> None:
        """The same as for the entry: None is not accepted.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        self.entry.check(value, where, known)


@dataclass(frozen=True)
class Several(Entry):
    """A list of a known length.

    Examples:
        >>> from consort import Model, Several, on_client
        >>> @on_client(changes=lambda self, sent: Several(Model(), len(sent["models"])))
        ... def train(self, client, models): ...
    """

    entry: Entry
    """What each element is."""
    count: int
    """The length."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses lists of another length.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        if not isinstance(value, list) or len(value) != self.count:
            found = f"has {len(value)}" if isinstance(value, list) else f"is {shown(value)}"
            raise Refused(f"{where} {found}, expected a list of {self.count}")
        for number, item in enumerate(value):
            self.entry.check(item, f"{where}[{number}]", known)

    def size(self, known: Known) -> Size:
        """The size of all elements.

        Args:
            known: What the server knows about the client.
        """
        return self.entry.size(known) * self.count


@dataclass(frozen=True)
class ByTask(Entry):
    """A dict with an element for some or all of the client's tasks.

    Examples:
        >>> from consort import ByTask, Number, on_client
        >>> @on_client(weights=ByTask(Number(0, 1)))
        ... def train(self, client, model): ...
    """

    entry: Entry
    """What each element is."""
    every: bool = False
    """Whether no task may be missing."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses tasks that the client does not have, and if so declared, those that are missing.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        items = list(_items(value, where))
        if self.every and len(items) < len(known.tasks):
            raise Refused(f"{where} has {len(items)} tasks, expected {len(known.tasks)}")
        for task, item in items:
            if task not in known.tasks:
                raise Refused(f"{where} has {shown(task)}, which is not a task of this client")
            self.entry.check(item, f"{where}[{task!r}]", replace(known, task=task))

    def size(self, known: Known) -> Size:
        """The size of an element for every task.

        Args:
            known: What the server knows about the client.
        """
        sizes = [self.entry.size(replace(known, task=task)) for task in known.tasks]
        return sum(sizes, start=Size(values=LONGEST_NAME * len(sizes)))


@dataclass(frozen=True)
class ByClass(Entry):
    """A dict with an element for every class that a client has examples of."""

    entry: Entry
    """What each element is."""
    of_head: bool = False
    """Whether the head of the task, whose layers are linear, tells how many classes there are."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses more classes than examples, and what is not the number of a class.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        label = Whole(0, label_count(known) - 1 if self.of_head else 2**31)
        entries = list(_items(value, where))
        if len(entries) > min(known.examples, _MOST_CLASSES):
            raise Refused(f"{where} has {len(entries)} classes of {known.examples} examples")
        for found, item in entries:
            label.check(found, f"a class in {where}", known)
            self.entry.check(item, f"{where}[{found}]", known)

    def size(self, known: Known) -> Size:
        """The size of an element for every possible class.

        Args:
            known: What the server knows about the client.
        """
        most = min(known.examples, label_count(known) if self.of_head else _MOST_CLASSES)
        return self.entry.size(known) * most


@dataclass(frozen=True)
class Features(Entry):
    """A vector of features that a client's encoder computed, such as the mean of a class."""

    of_head: bool = False
    """Whether the head of the task, whose layers are linear, tells how many there are."""
    maps: bool = False
    """Whether they may be maps, with up to three dimensions, if heads or decoders have kernels."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses tensors of other lengths or types.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        most = 3 if self._are_maps(known) else 1
        if not isinstance(value, Tensor) or not 1 <= value.ndim <= most:
            raise Refused(f"{where} is not a tensor of features")
        length = self._length(known)
        if value.numel() > _MOST_FEATURES or length not in (None, len(value)):
            raise Refused(f"{where} has shape {tuple(value.shape)}, not that of features")
        if value.dtype is not _kind_of(known):
            raise Refused(f"{where} has type {value.dtype}, expected {_kind_of(known)}")

    def size(self, known: Known) -> Size:
        """The size of the vector, or the largest one if its length is not known.

        Args:
            known: What the server knows about the client.
        """
        length = None if self._are_maps(known) else self._length(known)
        most = min(_MOST_FEATURES, known.form.params.size)
        return Size((length or most) * _kind_of(known).itemsize, 1)

    def _are_maps(self, known: Known) -> bool:
        kinds = known.form.part(("heads", "decoders"), ()).kinds.values()
        return self.maps and any(len(shape) > 2 for shape, _ in kinds)

    def _length(self, known: Known) -> int | None:
        first = next(known.form.matrices(known.task), None) if self.of_head else None
        return first[1] if first else known.features


class LabelCounts(Entry):
    """How often each label of a task occurs among the training examples, as a tensor."""

    def check(self, value: Any, where: str, known: Known) -> None:
        """Refuses counts of other labels, negative ones and those of more examples.

        Args:
            value: What the client sent.
            where: The name of the entry.
            known: What the server knows about the client.
        """
        check_kind(where, value, (label_count(known),), torch.float32)
        if not bool((value >= 0).all()) or not float(value.sum()) <= known.examples:
            raise Refused(f"{where} counts fewer than 0 or more than {known.examples} examples")

    def size(self, known: Known) -> Size:
        """One number for every label.

        Args:
            known: What the server knows about the client.
        """
        return Size(label_count(known) * 4, 1)


def label_count(known: Known) -> int:
    """How many labels the head of the present task tells apart: two if it has a single logit."""
    outputs = [rows for rows, _ in known.form.matrices(known.task)]
    return max(outputs[-1], 2) if outputs else 2


def _kind_of(known: Known) -> torch.dtype:
    """The type of the first parameter of a client's model, which its features have too."""
    return next((kind for _, kind in known.form.whole.kinds.values()), torch.float32)


def _items(value: Any, where: str) -> Iterator[tuple[Any, Any]]:
    if not isinstance(value, dict):
        raise Refused(f"{where} is {shown(value)}, expected a dict")
    yield from value.items()
