"""Data of any kind, divided among clients and into training, validation and test data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from consort.core.validation import checked
from consort.data.dataset import Dataset
from consort.data.examples import Examples, Splits
from consort.data.partition import Cut, Share
from consort.data.partition import partition as divide
from consort.data.sources import dataset_from, examples_of, for_tasks, labels_of, preferring
from consort.errors import UsageError
from consort.tasks import Task

_NAMES = ("train", "validation", "test")


class Parts(dict[str, Splits]):
    """The data of each client by its name, with a picture of who holds what.

    Args:
        splits: The data of each client.
        labels: The labels of each client's examples, in all splits.
    """

    def __init__(
        self, splits: Mapping[str, Splits], labels: Mapping[str, NDArray[np.int64]]
    ) -> None:
        super().__init__(splits)
        self._labels = dict(labels)

    @property
    def counts(self) -> dict[str, dict[int, int]]:
        """How many examples of each class each client has."""
        return {name: _counted(labels) for name, labels in self._labels.items()}

    def picture(self, path: Path | str) -> None:
        """Draws who holds what: one circle per client and class, whose area is their number.

        Args:
            path: The .svg file to write.
        """
        from consort.core.files import write_file

        write_file(Path(path), self._repr_svg_().encode())

    def _repr_svg_(self) -> str:
        from consort.data.picture import bubbles

        return bubbles(self.counts)


def partition(
    data: Any,
    clients: int,
    by: str = "iid",
    *,
    tasks: Mapping[str, Task] | Task | None = None,
    targets: str | Sequence[str] = (),
    seed: int = 0,
    **options: Any,
) -> Parts:
    """Divides data of any kind among clients, and those of each client into three splits.

    Args:
        data: What `Examples.of` takes, or a `Dataset`.
        clients: The number of clients.
        by: The scheme, such as `dirichlet` or `classes`: the key `partition.by` of recipes.
        tasks: The tasks by name, or the only task; only needed if targets are not classes.
        targets: The columns that are targets: see `Examples.of`.
        seed: The seed of the partition.
        **options: The other keys of the table `partition` of recipes, such as `alpha`.

    Returns:
        The data of the clients, which are named `client-0`, `client-1`, ….

    Raises:
        UsageError: If the data are of another kind, or too few for the scheme.

    Examples:
        >>> import torch
        >>> from consort import partition
        >>> labels = torch.arange(120) % 3
        >>> parts = partition((torch.rand(120, 4), labels), 4, by="dirichlet", alpha=0.3, seed=1)
        >>> list(parts)
        ['client-0', 'client-1', 'client-2', 'client-3']
        >>> sum(len(part) for splits in parts.values() for part in splits.parts)
        120
    """
    dataset = _dataset(data, tasks, targets)
    cut: Cut = checked(Cut, {"by": by, **options}, "partition")
    shares = divide(dataset, clients, cut, seed)
    width = len(str(max(clients - 1, 0)))
    named = {f"client-{number:0{width}d}": share for number, share in enumerate(shares)}
    return Parts(
        {name: _taken(dataset, share) for name, share in named.items()},
        {name: dataset.labels[_all(share)] for name, share in named.items()},
    )


def splits_of(data: Any, tasks: Sequence[str], seed: int) -> Splits:
    """Splits from almost any data: see `Splits.of`."""
    if isinstance(data, Splits):
        return data.map(lambda part: _named(part, tasks))
    if isinstance(data, Mapping) and "train" in data:
        return _from_parts({name: data[name] for name in _NAMES if name in data}, tasks, seed)
    if isinstance(data, tuple) and len(data) == 3:
        return _from_parts(dict(zip(_NAMES, data, strict=True)), tasks, seed)
    whole = _examples(data, tasks)
    train, validation, test = _divided(whole, seed, Cut(min_examples=1))
    return Splits(train, validation, test)


def _from_parts(parts: Mapping[str, Any], tasks: Sequence[str], seed: int) -> Splits:
    """Splits of which validation or test data may be missing; these are taken from the others."""
    found = {name: _examples(part, tasks) for name, part in parts.items()}
    if "test" not in found:
        raise UsageError(f"the data are divided into {', '.join(parts)}: add test data")
    if "validation" not in found:
        cut = Cut(min_examples=1, validation=0.15, test=1e-9)
        train, validation, rest = _divided(found["train"], seed, cut)
        found |= {"train": Examples.concatenate([train, rest]), "validation": validation}
    return Splits(found["train"], found["validation"], found["test"])


def _examples(data: Any, tasks: Sequence[str]) -> Examples:
    return _named(preferring(data, tasks), tasks)


def _named(examples: Examples, tasks: Sequence[str]) -> Examples:
    complete = all(task in examples.targets for task in tasks)
    return examples if complete else for_tasks(examples, tasks)


def _divided(examples: Examples, seed: int, cut: Cut) -> tuple[Examples, Examples, Examples]:
    dataset = _unnamed(examples)
    (share,) = divide(dataset, 1, cut, seed)
    splits = _taken(dataset, share)
    return splits.train, splits.validation, splits.test


def _dataset(data: Any, tasks: Any, targets: str | Sequence[str]) -> Dataset:
    if isinstance(data, Dataset) or tasks is not None:
        return dataset_from(data, tasks, targets, "data")
    return _unnamed(examples_of(data, targets))


def _unnamed(examples: Examples) -> Dataset:
    """A data set that is only divided: of its tasks the names are known."""
    tasks: dict[str, Any] = dict.fromkeys(examples.targets)
    return Dataset("data", examples, tasks, labels_of(examples))


def _taken(dataset: Dataset, share: Share) -> Splits:
    parts = share.train, share.validation, share.test
    train, validation, test = (
        dataset.examples.only(share.tasks).take(torch.from_numpy(part)).changed(dataset.prepare)
        for part in parts
    )
    return Splits(train, validation, test)


def _all(share: Share) -> NDArray[np.int64]:
    return np.concatenate([share.train, share.validation, share.test])


def _counted(labels: NDArray[np.int64]) -> dict[int, int]:
    values, counts = np.unique(labels, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
