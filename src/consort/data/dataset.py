"""A data set before it is partitioned among clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from consort.core.inputs import Inputs
from consort.data.examples import Examples
from consort.tasks import Task


def as_is(inputs: Any) -> Any:
    """The default preparation, which returns `inputs` unchanged."""
    return inputs


class Reader(Protocol):
    """Reads further examples from files, as those of the data set were read."""

    def read(self, path: Path) -> NDArray[np.uint8]:
        """Reads one example, without the preparation of the data set.

        Args:
            path: The file.
        """
        ...

    def table(self) -> dict[str, Any]:
        """The reader's settings as JSON values, from which it can be made again."""
        ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """All examples of a data set, with what partitions may depend on.

    Inputs are stored compactly (bytes for images, token ids for text); `prepare` turns those of one
    client into the inputs of its model.

    Examples:
        >>> import numpy as np
        >>> import torch
        >>> from consort import Classification, Dataset, Examples
        >>> pixels = torch.tensor([[0], [255], [51]], dtype=torch.uint8)
        >>> labels = np.array([0, 1, 0])
        >>> dataset = Dataset(
        ...     "shades",
        ...     Examples(pixels, {"bright": torch.from_numpy(labels)}),
        ...     {"bright": Classification(2)},
        ...     labels,
        ...     prepare=lambda inputs: inputs / 255,
        ... )
        >>> len(dataset), dataset.example
        (3, tensor([0.]))
    """

    name: str
    """The name of the data set."""
    examples: Examples
    """All examples, before `prepare`."""
    tasks: dict[str, Task]
    """The tasks by name."""
    labels: NDArray[np.int64]
    """The class of each example, for label skew and stratified splits."""
    strata: NDArray[np.int64] | None = None
    """What splits keep in proportion, if that is finer than the class."""
    owners: NDArray[np.int64] | None = None
    """The natural client of each example, such as a writer or a hospital, if there is one."""
    domains: NDArray[np.int64] | None = None
    """The domain of each example, such as a sensor or a style, if there is one."""
    units: NDArray[np.int64] | None = None
    """Examples with the same number stay together, such as the views of one place."""
    prepare: Callable[[Any], Any] = as_is
    """Turns stored inputs into inputs of models."""
    reader: Reader | None = None
    """Reads further examples from files, if models can be used on such files."""

    @staticmethod
    def of(
        data: Any,
        tasks: Mapping[str, Task] | Task | None = None,
        targets: str | Sequence[str] = (),
        name: str = "data",
    ) -> Dataset:
        """A data set made of almost any data.

        Args:
            data: What `Examples.of` takes, or a `Dataset`.
            tasks: The tasks by name, or the only task; by default the classification of targets
                that are whole numbers.
            targets: The columns that are targets: see `Examples.of`.
            name: The name of the data set.

        Raises:
            UsageError: If the data are of another kind, have no targets, or need tasks.
        """
        from consort.data.sources import dataset_from

        return dataset_from(data, tasks, targets, name)

    def __len__(self) -> int:
        return len(self.examples)

    @cached_property
    def example(self) -> Inputs:
        """One prepared input."""
        return self.examples.rows(0, 1).changed(self.prepare).example
