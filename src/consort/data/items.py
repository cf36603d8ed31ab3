"""Examples from data sets with one item at a time, such as a torch `Dataset` or `Subset`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from consort.core.inputs import Inputs, tensors_of
from consort.data.columns import TARGET, as_target, as_tensor, from_columns
from consort.data.examples import Examples
from consort.data.unread import Unread
from consort.errors import UsageError

KEPT_BYTES = 1 << 30
"""Inputs up to this size are read once and kept; larger ones are read when batches are taken."""
_COMPARED = 8
"""How many items are read twice, to see whether they are drawn at random."""


def from_items(data: Any, targets: Sequence[str] = ()) -> Examples:
    """Examples from a data set of items.

    Small data sets are read into memory. Large ones, and those whose items are not the same when
    they are read again, as with random transforms, are read when batches are taken.

    Args:
        data: A sequence whose items are pairs of inputs and targets, or dicts.
        targets: The entries of dicts that are targets; by default the one with a usual name.

    Raises:
        UsageError: If there are no items, or an item is of another kind.
    """
    count = len(data)
    if not count:
        raise UsageError(f"the {type(data).__name__} is empty: give it at least one item")
    whole = _in_memory(data)
    if whole is not None:
        return whole
    first = _item(data, 0, targets)
    size = count * sum(tensor.nbytes for tensor in tensors_of(first.loaded))
    some = [first, *(_item(data, place, targets) for place in range(1, min(_COMPARED, count)))]
    if size <= KEPT_BYTES and _repeats(data, some, targets):
        rest = (_item(data, place, targets) for place in range(len(some), count))
        return _stacked([*some, *rest])
    inputs = Unread(ItemSource(data, tuple(targets)), torch.arange(count))
    return Examples(inputs, _targets(data, first, targets))


class ItemSource:
    """Reads the inputs of items when they are needed.

    Random transforms draw from the generators of torch, Python and NumPy, which depend on the seed
    of the run.

    Args:
        data: The data set.
        targets: The entries of items that are targets.
    """

    def __init__(self, data: Any, targets: tuple[str, ...] = ()) -> None:
        self._data = data
        self._targets = targets

    def read(self, index: Tensor) -> Inputs:
        """The inputs of the items at the positions `index`."""
        with _seeded():
            items = [_item(self._data, place, self._targets) for place in index.tolist()]
        return _stacked(items).loaded


@contextmanager
def _seeded() -> Iterator[None]:
    """Draws seeds for Python's and NumPy's generators from torch's, which clients have seeded."""
    seed = int(torch.randint(2**32, ()))
    states = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _in_memory(data: Any) -> Examples | None:
    """The examples of a `TensorDataset`, or of a `Subset` of one, without reading single items."""
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return Examples(tensors[0], {TARGET: as_target(tensors[1], "the targets")})
    if hasattr(data, "dataset") and hasattr(data, "indices"):
        whole = _in_memory(data.dataset)
        return whole and whole.take(torch.as_tensor(data.indices))
    return None


def _item(data: Any, place: int, targets: Sequence[str]) -> Examples:
    """One item as a batch of one."""
    item = data[place]
    if isinstance(item, Mapping):
        values = {key: [value] for key, value in item.items()}
        rows = {key: _row(value[0], f"item {place}: {key!r}") for key, value in values.items()}
        return from_columns(rows, targets)
    if isinstance(item, tuple | list) and len(item) == 2:
        inputs, target = item
        names = target if isinstance(target, Mapping) else {TARGET: target}
        return Examples(
            {key: _row(value, f"item {place}: {key!r}") for key, value in inputs.items()}
            if isinstance(inputs, Mapping)
            else _row(inputs, f"item {place}"),
            {
                key: as_target(_row(value, f"item {place}: its target"), "a target")
                for key, value in names.items()
            },
        )
    raise UsageError(
        f"item {place} of the {type(data).__name__} is a {type(item).__name__} where a pair of "
        "inputs and target, or a dict, is expected"
    )


def _row(value: Any, what: str) -> Tensor:
    if type(value).__module__.startswith("PIL"):
        raise UsageError(f"{what} is a PIL image: let the data set's transform make a tensor of it")
    return as_tensor(value, what)[None]


def _stacked(items: Sequence[Examples]) -> Examples:
    try:
        return Examples.concatenate(items)
    except RuntimeError as error:
        raise UsageError(
            f"items differ in shape: resize or pad them to one shape ({error})"
        ) from error


def _repeats(data: Any, some: Sequence[Examples], targets: Sequence[str]) -> bool:
    """Whether the first items are the same when they are read again."""
    for place, item in enumerate(some):
        again = tensors_of(_item(data, place, targets).loaded)
        if not all(map(torch.equal, tensors_of(item.loaded), again)):
            return False
    return True


def _targets(data: Any, first: Examples, targets: Sequence[str]) -> dict[str, Tensor]:
    """The targets of all items; from an attribute, as in torchvision, if there is one."""
    known = _known_targets(data)
    if known is not None and list(first.targets) == [TARGET]:
        found = as_target(known, "its targets")
        if len(found) == len(data) and torch.equal(found[:1], first.targets[TARGET]):
            return {TARGET: found}
    with _seeded():
        items = [_item(data, place, targets).targets for place in range(len(data))]
    return {name: torch.cat([item[name] for item in items]) for name in first.targets}


def _known_targets(data: Any) -> Any:
    if hasattr(data, "dataset") and hasattr(data, "indices"):
        whole = _known_targets(data.dataset)
        return None if whole is None else as_tensor(whole, "its targets")[list(data.indices)]
    return getattr(data, "targets", None)
